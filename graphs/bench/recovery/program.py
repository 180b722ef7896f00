"""The training that is interrupted: the calculator, tiny; what its environment executes and each step trains is written down.

The environment fails by number and answers late by chance. What is written down goes to ``flow.testing.appended``, so all of it
runs in processes that ``flow.testing.processes`` starts.
"""

from dataclasses import replace

from flax import nnx
from pydantic import BaseModel, ConfigDict, Field

from flow.testing import appended, reach
from graphs.bench.recovery.world import late_env
from graphs.bench.small import MODEL, SAMPLING
from graphs.bench.witnessed import SeenStep, targets_of, witnessed
from graphs.calculator import CalculatorConfig
from graphs.evaluate import EvaluateConfig
from graphs.heldout_config import HeldoutConfig
from graphs.parts import Parts
from graphs.program import Phase, Program, training, warm_start
from graphs.rl_config import RlConfig
from graphs.seeds import seeded
from graphs.sft import SftConfig
from stages.agents.tool_agent import ToolAgent
from stages.envs.environment import Environment, Opening, Reply, opening_messages
from stages.envs.housed import MakeEnv, on_loop
from stages.envs.pool import EnvPool
from stages.envs.process_env import ProcessEnv
from stages.models.transformer import Transformer
from stages.records import Batch, Episode, Message, Task
from stages.rewards.answers import final_text
from stages.rollout.config import EngineConfig
from stages.rollout.engine import Engine
from stages.tasks.arithmetic import DEMONSTRATIONS, arithmetic_tasks
from stages.tasks.examples import read_examples
from stages.text.compact import CompactChat
from stages.tools.calculator import calculator_tool
from stages.tools.context import tool_context
from stages.tools.tool import Tool
from stages.train.config import TrainerConfig

FAILS_OF = 31
"""One of how many members fails at first; it costs a process, and another one is started."""
TRAINER = TrainerConfig(row_length=64, rows_per_microbatch=4, learning_rate=1e-2)
TINY = CalculatorConfig(
    num_train_tasks=64,
    model=MODEL,
    engine=EngineConfig(slots=16, context_length=64, prefill_rows=8, prefill_chunk=16),
    warm_start=SftConfig(steps=9, examples_per_step=32, trainer=TRAINER.model_copy(update={"learning_rate": 2e-2})),
    evaluate=EvaluateConfig(num_tasks=8, max_concurrency=8, sampling=SAMPLING.model_copy(update={"seed": 1})),
    rl=RlConfig(
        steps=5, groups_per_step=3, group_size=4, max_concurrency=8, trainer=TRAINER, sampling=SAMPLING,
        heldout=HeldoutConfig(every=3, num_tasks=6, max_concurrency=4, seed=2),
    ),
)  # fmt: skip


class CountedEnv:
    """An environment that writes down each episode that it begins and ends. The first attempt at some members fails, by number.

    Args:
        env: does the work.
        fails_of: one of how many members fails at first.
    """

    def __init__(self, env: Environment, fails_of: int = 13) -> None:
        self._env, self._fails_of, self._name, self._fails, self._goes_on = env, fails_of, "", False, False

    async def reset(self, task: Task, key: tuple[int, int, int, int]) -> Opening:
        """See ``Environment.reset``."""
        seed, birth, member, retry = key
        self._name = f"{seed} {task.id} {birth} {member} {retry} {tool_context().attempt}"
        appended("begun", self._name)
        self._goes_on = True
        self._fails = retry == 0 and (7 * birth + member) % self._fails_of == 0
        return await self._env.reset(task, key)

    async def step(self, message: Message) -> Reply:
        """See ``Environment.step``.

        Raises:
            RuntimeError: the number is one of those that fail.
        """
        if self._fails:
            raise RuntimeError("out of luck")
        return await self._env.step(message)

    async def score(self) -> dict[str, float] | None:
        """See ``Environment.score``."""
        parts = await self._env.score()
        self._end()
        return parts

    async def close(self) -> None:
        """See ``Environment.close``."""
        await self._env.close()
        self._end()

    def _end(self) -> None:
        if self._goes_on:
            self._goes_on = False
            appended("ended", self._name)


def letters(episode: Episode) -> float:
    """Something that tells the members of a group apart, whatever they say."""
    return sum((final_text(episode) or "").encode()) % 3 / 2


def counted_parts(config: CalculatorConfig, tool: Tool, make_env: MakeEnv | EnvPool) -> Parts:
    """Model, engine and tasks of a training whose environments are made by ``make_env``."""
    model, chat = nnx.eval_shape(lambda: Transformer(config.model, nnx.Rngs(0))), CompactChat([tool])
    return Parts(
        model=model,
        load=lambda: nnx.update(model, nnx.state(Transformer(config.model, nnx.Rngs(config.seed)), nnx.Param)),
        engine=Engine(model, config.engine, decode=chat.decode),
        chat=chat,
        agent=ToolAgent(),
        make_env=make_env,
        opening=opening_messages,
        tools=(tool,),
        reward=letters,
        train=arithmetic_tasks(config.tasks, 0, config.num_train_tasks, "train"),
        heldout=arithmetic_tasks(config.tasks, 0, config.evaluate.num_tasks, "heldout"),
    )


def told(phase: Phase) -> Phase:
    """A phase of training that writes down what it trains, and can die between two groups of a step and after an update."""
    return replace(phase, make=lambda folder: witnessed(phase.make(folder), _trained, _given))


class InterruptedConfig(BaseModel):
    """The training that is interrupted."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int = Field(default=0, ge=0, lt=2**31)
    """Seed of the run: every part's seed follows from it."""
    steps: int = Field(default=5, ge=1)
    """Steps of reinforcement learning."""
    warm_steps: int = Field(default=9, ge=0)
    """Steps of the warm start; 0 for none."""
    processes: int = Field(default=2, ge=1)
    """Processes of environments."""


def train(config: InterruptedConfig) -> Program:
    """What is interrupted, as ``headrace run FILE:train`` has it: a warm start, and GRPO with environments in processes."""
    tiny = seeded(TINY.model_copy(update={"seed": config.seed}))
    rl = tiny.rl.model_copy(update={"heldout": HeldoutConfig(), "steps": config.steps})
    pool = EnvPool(on_loop(lambda task: CountedEnv(ProcessEnv(late_env), FAILS_OF)), config.processes)
    parts = counted_parts(tiny, calculator_tool(), pool)
    phases = [told(training(rl, parts))]
    if config.warm_steps:
        warm = tiny.warm_start.model_copy(update={"steps": config.warm_steps})
        phases.insert(0, warm_start(warm, parts, read_examples(DEMONSTRATIONS)[:200]))
    return Program("recovery", config, parts, phases, rl.max_lag)


def _trained(step: SeenStep) -> None:
    appended("trained", step.number, *(name.replace(" ", "_") for name in targets_of(step)))
    reach("step.trained")


def _given(batch: Batch) -> None:
    reach("step.given")
