"""Programs over a pretrained language model: reinforcement learning, supervised training, evaluation.

One description of policy, world and tasks, and three programs made of it. The graphs themselves are those of ``grpo.py``,
``sft.py`` and ``evaluate.py``.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from graphs.engine_trace import EngineTrace
from graphs.evaluate import EvaluateConfig
from graphs.grpo import GrpoConfig
from graphs.parts import Parts
from graphs.program import Program, evaluation, supervised, training
from graphs.sft import SftConfig
from stages.agents.model_agent import ModelAgent
from stages.agents.tool_agent import ToolAgent
from stages.envs.environment import opening_messages
from stages.envs.task_env import TaskEnv
from stages.envs.tool_env import ToolEnv
from stages.models.gguf import describe_gguf, fill_from_gguf
from stages.records import Task
from stages.rewards.answers import exact_answer, last_number, needs_answer, needs_number
from stages.rollout.config import EngineConfig
from stages.rollout.engine import Engine
from stages.tasks.arithmetic import ArithmeticConfig, Split, arithmetic_tasks
from stages.tasks.examples import read_examples
from stages.tasks.jsonl import JsonlTasks
from stages.text.gguf_tokenizer import load_gguf_tokenizer
from stages.text.template import TemplateChat
from stages.tools.calculator import calculator_tool
from stages.train.config import TrainerConfig


class PolicyConfig(BaseModel):
    """The model and how it meets its tasks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    gguf: Path | None = None
    """File of the pretrained model, llama family, with tokenizer and chat template inside. None is refused when a program is
    made: there is no default model."""
    engine: EngineConfig = EngineConfig(slots=32, context_length=256, prefill_rows=8, prefill_chunk=32)
    """Shapes of the engine."""
    system: str | None = None
    """System message of every episode; ``None`` leaves it to the chat template."""
    tools: Literal["none", "calculator"] = "none"
    """What the agent may call: nothing, so that its first turn is its answer, or a calculator."""
    reward: Literal["exact_answer", "last_number"] = "last_number"
    """What earns 1: the answer to the letter, or its last number equal to the reference as a number."""


class TasksConfig(BaseModel):
    """Where tasks come from: files, or generated arithmetic."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    train: Path | None = None
    """JSONL file of training tasks; ``None`` generates ``num_train``."""
    heldout: Path | None = None
    """JSONL file of held-out tasks; ``None`` generates as many as the evaluation wants."""
    num_train: int = Field(default=1024, ge=1)
    """Generated training tasks."""
    arithmetic: ArithmeticConfig = ArithmeticConfig(operators="+", digits=(1, 1), prompt="What is {expression}?")
    """What is generated."""


class _Pretrained(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int = Field(default=0, ge=0, lt=2**31)
    """Seed of the generated tasks; the seeds of the parts are theirs."""
    policy: PolicyConfig = PolicyConfig()
    """The model and how it meets its tasks."""
    tasks: TasksConfig = TasksConfig()
    """Where tasks come from."""
    evaluate: EvaluateConfig = EvaluateConfig(num_tasks=64, max_concurrency=32)
    """Held-out evaluation."""


class GrpoProgramConfig(_Pretrained):
    """Evaluation, GRPO, evaluation."""

    grpo: GrpoConfig = GrpoConfig(max_concurrency=32, trainer=TrainerConfig(row_length=256))
    """Reinforcement learning."""


class SftProgramConfig(_Pretrained):
    """Supervised training, then evaluation."""

    demonstrations: Path | None = None
    """JSONL file of conversations; ``None`` is refused when the program is made."""
    sft: SftConfig = SftConfig(trainer=TrainerConfig(row_length=256, learning_rate=1e-5))
    """Supervised training."""


class EvaluateProgramConfig(_Pretrained):
    """Evaluation alone."""


def grpo_program(config: GrpoProgramConfig) -> Program:
    """Reinforcement learning with held-out evaluation before and after."""
    parts = make_parts(config)
    phases = (
        evaluation("heldout_before", config.evaluate, parts),
        training(config.grpo, parts),
        evaluation("heldout_after", config.evaluate, parts),
    )
    return Program("grpo", config, parts, phases, config.grpo.max_lag)


def sft_program(config: SftProgramConfig) -> Program:
    """Supervised training with held-out evaluation after it."""
    examples = read_examples(_given(config.demonstrations, "demonstrations", "a JSONL file of conversations"))
    parts = make_parts(config)
    phases = (supervised(config.sft, parts, examples), evaluation("heldout_after", config.evaluate, parts))
    return Program("sft", config, parts, phases)


def evaluate_program(config: EvaluateProgramConfig) -> Program:
    """Held-out evaluation of a pretrained model."""
    parts = make_parts(config)
    return Program("evaluate", config, parts, (evaluation("heldout", config.evaluate, parts, main=True),))


def make_parts(config: _Pretrained) -> Parts:
    """Put the world around a model that is yet to be loaded. Tasks are read first, since their faults are the user's.

    Raises:
        ValueError: no model was named.
        RowError: a task file has broken rows.
    """
    policy = config.policy
    path = _given(policy.gguf, "policy.gguf", "the file of a pretrained model")
    train = _tasks(config, config.tasks.train, config.tasks.num_train, "train")
    heldout = _tasks(config, config.tasks.heldout, config.evaluate.num_tasks, "heldout")[: config.evaluate.num_tasks]
    tools = (calculator_tool(),) if policy.tools == "calculator" else ()
    trace = EngineTrace()
    chat = TemplateChat(load_gguf_tokenizer(path))
    model = describe_gguf(path)
    return Parts(
        model=model,
        load=functools.partial(fill_from_gguf, model, path),
        engine=Engine(model, policy.engine, trace=trace),
        trace=trace,
        chat=chat,
        agent=ToolAgent() if tools else ModelAgent(),
        make_env=lambda task: ToolEnv(tools, system=policy.system) if tools else TaskEnv(system=policy.system),
        opening=lambda task: opening_messages(task, policy.system),
        tools=tools,
        reward=exact_answer if policy.reward == "exact_answer" else last_number,
        train=train,
        heldout=heldout,
    )


def _tasks(config: _Pretrained, path: Path | None, count: int, split: Split) -> Sequence[Task]:
    if path is not None:
        _given(path, f"tasks.{'train' if split == 'train' else 'heldout'}", "a JSONL file of tasks")
    check = needs_answer if config.policy.reward == "exact_answer" else needs_number
    return (
        JsonlTasks(path, check=check)
        if path is not None
        else arithmetic_tasks(config.tasks.arithmetic, config.seed, count, split)
    )


def _given(path: Path | None, name: str, what: str) -> Path:
    if path is None:
        raise ValueError(f"expected {what}, got none, in {name}; pass --{name} PATH")
    if not path.is_file():
        raise ValueError(f"expected {what}, got '{path}', which is no file, in {name}; check the path")
    return path
