"""The world around a pretrained language model: its name, what it may call, what earns a reward, where tasks come from."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import tyro
from pydantic import BaseModel, ConfigDict, Field

from graphs.engines import make_engine
from graphs.evaluate import EvaluateConfig
from graphs.model_and_chat import describe_both
from graphs.model_source import find_model
from graphs.parts import Parts
from graphs.placing import PlacingConfig, place
from graphs.teacher import pretrained_teacher
from stages.agents.model_agent import ModelAgent
from stages.agents.tool_agent import ToolAgent
from stages.envs.environment import opening_messages
from stages.envs.housed import on_loop
from stages.envs.task_env import TaskEnv
from stages.envs.tool_env import ToolEnv
from stages.models.pretrained import fill_model
from stages.records import Task
from stages.rewards.answers import exact_answer, last_number, needs_answer, needs_number
from stages.rollout.config import EngineConfig
from stages.rollout.http.config import HttpConfig
from stages.tasks.arithmetic import ArithmeticConfig, Split, arithmetic_tasks
from stages.tasks.columns import Columns
from stages.tasks.files import read_tasks
from stages.text.calls import FormatName
from stages.tools.calculator import calculator_tool


class PolicyConfig(PlacingConfig):
    """The model and how it meets its tasks."""

    model: Annotated[str | None, tyro.conf.arg(aliases=["--model"])] = None
    """The pretrained model: a Hugging Face folder, a .gguf file, or OWNER/NAME on the Hugging Face Hub. None is refused when a
    program is made: there is no default model."""
    revision: str | None = None
    """Commit, branch or tag of a model on the Hub; ``None`` takes its main branch. What a branch stood for is in the run's
    ``summary.json``, and ``config.json`` names that commit."""
    teacher: str | None = None
    """The model to be distilled from, named like the policy; its tokenizer must be the policy's. ``None`` for none."""
    teacher_revision: str | None = None
    """Commit, branch or tag of a teacher on the Hub; ``None`` takes its main branch."""
    engine: EngineConfig = EngineConfig(slots=32, context_length=256)
    """Shapes of the engine."""
    servers: HttpConfig | None = None
    """Servers that sample in place of an engine in this process; ``None`` for that engine."""
    system: str | None = None
    """System message of every episode; ``None`` leaves it to the chat template."""
    tools: Literal["none", "calculator"] = "none"
    """What the agent may call: nothing, so that its first turn is its answer, or a calculator."""
    calls: FormatName | None = None
    """Format of tool calls; ``None`` takes the one the model's chat template writes, or Hermes' where it writes none."""
    history: Literal["append", "fork"] = "append"
    """Where the chat template would rewrite earlier turns: go on from what the policy saw, or begin a new training row with the
    template's own rendering."""
    reward: Literal["exact_answer", "last_number"] = "last_number"
    """What earns 1: the answer to the letter, or its last number equal to the reference as a number."""


class TasksConfig(BaseModel):
    """Where tasks come from: files, or generated arithmetic."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    train: Path | None = None
    """Training tasks: a JSONL or Parquet file, or the folder of a saved Hugging Face data set; ``None`` generates
    ``num_train``."""
    also: tuple[Path, ...] = ()
    """More files of training tasks, alike; with any, all are held in memory. Where no column says it, the source of a task is
    the name of its file: see ``rl.draw.weights``."""
    heldout: Path | None = None
    """Held-out tasks, alike; ``None`` generates as many as the evaluation wants."""
    columns: Columns = Columns()
    """Which column is which field of a task, in Parquet files and saved data sets."""
    num_train: int = Field(default=1024, ge=1)
    """Generated training tasks."""
    arithmetic: ArithmeticConfig = ArithmeticConfig(operators="+", digits=(1, 1), prompt="What is {expression}?")
    """What is generated."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    """Which are generated. Not the run's, so that runs of several seeds learn and are judged by the same tasks."""


class PretrainedConfig(BaseModel):
    """A pretrained model, its world and its tasks, whatever is done with it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int = Field(default=0, ge=0, lt=2**31)
    """Seed of the run: every part's seed that is not given follows from it."""
    policy: PolicyConfig = PolicyConfig()
    """The model and how it meets its tasks."""
    tasks: TasksConfig = TasksConfig()
    """Where tasks come from."""
    evaluate: EvaluateConfig = EvaluateConfig(num_tasks=64, max_concurrency=32)
    """Held-out evaluation."""


def make_parts(config: PretrainedConfig) -> Parts:
    """Put the world around a model that is yet to be loaded. Tasks are read first, since their faults are the user's.

    The weights need not be there, so that a program can be checked far from where it will run: ``prepare`` of ``graphs.runs``
    asks for them.

    Raises:
        ValueError: no model was named.
        RowError: a task file has broken rows.
    """
    policy = config.policy
    train = _with_more(config, _tasks(config, config.tasks.train, config.tasks.num_train, "train"))
    heldout = _tasks(config, config.tasks.heldout, config.evaluate.num_tasks, "heldout")[: config.evaluate.num_tasks]
    tools = (calculator_tool(),) if policy.tools == "calculator" else ()
    source = find_model(policy.model, policy.revision, "policy.model")
    model, chat = describe_both(source.path, calls=policy.calls, history=policy.history, weights=False)
    places = place(model, policy)
    named = policy.teacher
    teacher = None if named is None else pretrained_teacher(named, policy.teacher_revision, source.path, "policy.teacher")
    return Parts(
        model=model,
        load=functools.partial(fill_model, model, source.path),
        engine=make_engine(model, policy.engine, chat, policy.servers, places.engine),
        chat=chat,
        agent=ToolAgent() if tools else ModelAgent(),
        make_env=on_loop(lambda task: ToolEnv(tools, system=policy.system) if tools else TaskEnv(system=policy.system)),
        opening=lambda task: opening_messages(task, policy.system),
        tools=tools,
        reward=exact_answer if policy.reward == "exact_answer" else last_number,
        train=train,
        heldout=heldout,
        source=source,
        teacher=teacher,
        reference_mesh=places.reference,
    )


def _tasks(config: PretrainedConfig, path: Path | None, count: int, split: Split, setting: str | None = None) -> Sequence[Task]:
    if path is not None:
        given(
            path,
            setting or f"tasks.{'train' if split == 'train' else 'heldout'}",
            "tasks: JSONL, Parquet or a saved data set",
            folder=True,
        )
    check = needs_answer if config.policy.reward == "exact_answer" else needs_number
    return (
        read_tasks(path, columns=config.tasks.columns, check=check)
        if path is not None
        else arithmetic_tasks(config.tasks.arithmetic, config.tasks.seed, count, split)
    )


def _with_more(config: PretrainedConfig, train: Sequence[Task]) -> Sequence[Task]:
    if config.tasks.also and config.tasks.train is None:
        raise ValueError("expected tasks.train beside tasks.also, got none; name the first file there")
    more = [_tasks(config, path, 0, "train", "tasks.also") for path in config.tasks.also]
    return (*train, *(task for tasks in more for task in tasks)) if more else train


def given(path: Path | None, name: str, what: str, *, folder: bool = False) -> Path:
    """Check a file that a setting names.

    Args:
        path: the setting's value.
        name: of the setting, as on the command line.
        what: what the file should be.
        folder: whether it may be a folder.

    Raises:
        ValueError: there is none, or it is no file.
    """
    if path is None:
        raise ValueError(f"expected {what}, got none, in {name}; pass --{name} PATH")
    if not (path.is_file() or (folder and path.is_dir())):
        raise ValueError(f"expected {what}, got '{path}', which is no file, in {name}; check the path")
    return path
