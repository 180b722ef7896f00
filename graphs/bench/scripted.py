"""A world of which every duration is known: a policy by script that sleeps, tools that sleep, a tiny trainer at a pace.

Everything between them is the product's: the graph, episodes, agent, tool environment, rewards, packing and the trainer itself,
which trains a model of some thousand parameters. So what a run takes longer than its sleeps is what the product adds.
"""

import math
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import msgspec
import numpy as np
from flax import nnx
from pydantic import BaseModel, ConfigDict, Field

from flow import Graph
from graphs.bench.delays import DelaysConfig, FailingEnv, MixedTool, delay_of, fails_at_once
from graphs.bench.paced import Paced
from graphs.bench.traced import Traced, traced
from graphs.calculator import VOCABULARY
from graphs.parts import Parts
from graphs.rl import rl
from graphs.rl_config import RlConfig
from stages.agents.sampling import SamplingConfig
from stages.agents.tool_agent import ToolAgent
from stages.envs.environment import Environment, opening_messages
from stages.envs.housed import on_loop
from stages.envs.tool_env import ToolEnv
from stages.models.config import ModelConfig
from stages.models.transformer import Transformer
from stages.policy import Sample, SampleRequest
from stages.records import Episode, Message, Task, ToolCall, Weights
from stages.rewards.answers import exact_answer
from stages.rewards.functions import ContextReward, Function
from stages.rewards.judge import Judge, JudgeConfig
from stages.rollout.config import EngineConfig
from stages.rollout.statistics import EngineStatistics
from stages.scripted import ScriptedPolicy
from stages.tasks.arithmetic import ArithmeticConfig, arithmetic_tasks
from stages.text.chat import Chat
from stages.text.compact import CompactChat
from stages.tools.calculator import calculator_tool
from stages.train.config import TrainerConfig

CONTEXT_LENGTH = 64
JUDGE = "judge"
"""Pool of the judge, a unit of which is held while a group is judged."""
MODEL = ModelConfig(
    vocab_size=VOCABULARY, width=16, num_layers=1, num_heads=2, num_kv_heads=1, head_size=8, mlp_width=32,
    context_length=CONTEXT_LENGTH,
)  # fmt: skip
TRAINER = TrainerConfig(row_length=CONTEXT_LENGTH, rows_per_microbatch=8, learning_rate=1e-3)
SAMPLING = SamplingConfig(max_tokens_per_turn=16, max_turns=3)


class WorldConfig(BaseModel):
    """How long everything takes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    decode_s: float = Field(default=0.05, ge=0)
    """Seconds of a turn of the policy, whoever else it serves."""
    delays: DelaysConfig = DelaysConfig()
    """Of the tool, one call an episode."""
    load_s: float = Field(default=0.02, ge=0)
    """Seconds until new weights are in force."""
    group_s: float = Field(default=0.0, ge=0)
    """Least seconds that the trainer takes over a group."""
    step_s: float = Field(default=0.05, ge=0)
    """Least seconds that it takes over the end of a step."""
    judge_s: float = Field(default=0.0, ge=0)
    """Seconds in which the judge judges a group; 0 has no judge."""
    judges: int = Field(default=2, ge=1)
    """Groups that it judges at once, units of its pool."""
    failing: float = Field(default=0.0, ge=0, lt=1)
    """Share of the episodes that fail at once when they are tried for the first time."""


class SleepingEngine:
    """An engine by its promises: turns by script take a fixed time, and there is room for any number of them.

    Two turns an episode: a call of the calculator, then the answer, of odd members a wrong one, so that every group has
    something to learn from.

    Args:
        chat: writes what is said.
        config: of the world.
        slots: turns at once, so that the graph asks for no more.
    """

    context_length = CONTEXT_LENGTH

    def __init__(self, chat: Chat, config: WorldConfig, slots: int) -> None:
        self.config = EngineConfig(slots=slots, context_length=CONTEXT_LENGTH)
        self._says = ScriptedPolicy(chat, _right), ScriptedPolicy(chat, _wrong)
        self._world, self._version = config, 0
        self._saying = 0
        self._since = self._busy_s = 0.0

    async def sample(self, request: SampleRequest) -> Sample:
        """See ``Policy.sample``."""
        sample = await self._says[request.key[2] % 2].sample(request)
        self._count(+1)
        try:
            await anyio.sleep(self._world.decode_s)
        finally:
            self._count(-1)
        logprobs = np.full(len(sample.ids), -math.log(VOCABULARY), np.float32)
        return msgspec.structs.replace(sample, logprobs=logprobs, versions=np.full(len(sample.ids), self._version, np.int32))

    def release(self, session: str) -> None:
        """Nothing is kept."""

    def abort(self, session: str) -> None:
        """A turn is short."""

    async def load(self, weights: Weights, version: int) -> None:
        """See ``Engine.load``."""
        await anyio.sleep(self._world.load_s)
        self._version = version

    def statistics(self) -> EngineStatistics:
        """Of its counters those that it has: ``decode_s`` is the time in which it had a turn to say."""
        zeros = dict.fromkeys(EngineStatistics.__struct_fields__, 0)
        decode_s = self._busy_s + (time.monotonic() - self._since if self._saying else 0.0)
        return EngineStatistics(**{**zeros, "prefill_s": 0.0, "decode_s": decode_s, "version": self._version})

    def _count(self, change: int) -> None:
        now = time.monotonic()
        self._busy_s += now - self._since if self._saying else 0.0
        self._saying, self._since = self._saying + change, now


def scripted_parts(config: WorldConfig, slots: int, num_tasks: int) -> Parts:
    """The parts of a graph in this world.

    Args:
        config: how long everything takes.
        slots: turns of the policy at once.
        num_tasks: so many, for as many groups.
    """
    tool = calculator_tool()
    chat, model = CompactChat([tool]), Transformer(MODEL, nnx.Rngs(0))
    return Parts(
        model=model,
        load=lambda: None,
        engine=SleepingEngine(chat, config, slots),  # type: ignore[arg-type]
        chat=chat,
        agent=ToolAgent(),
        make_env=on_loop(world_of(config)),
        opening=opening_messages,
        tools=(tool,),
        reward=_rewards(config, chat),
        train=arithmetic_tasks(ArithmeticConfig(), 0, num_tasks, "train"),
        heldout=(),
    )


def world_of(config: WorldConfig) -> Callable[[Task], Environment]:
    """What makes the environment of an episode: the calculator with its delays, and what fails at once."""
    tool = calculator_tool()

    def make(task: Task) -> Environment:
        env = ToolEnv([MixedTool(tool, config.delays, task.id)])
        return FailingEnv(env, config.failing, config.delays.seed) if config.failing else env

    return make


def training(config: WorldConfig, settings: RlConfig, parts: Parts) -> Graph:
    """Declare training in this world. The trainer takes as long over a step whether it streams or holds it."""
    graph = rl(settings, parts)
    if config.judge_s:
        graph = graph.with_("rewards", workers=2 * config.judges, needs={JUDGE: 1})
    learner = graph.build(quiet=True).spec.nodes["trainer"].stage
    return graph.replace("trainer", Paced(learner, *pace_of(config, settings)))


def pace_of(config: WorldConfig, settings: RlConfig) -> tuple[float, float]:
    """Least seconds for a group and for the end of a step; a trainer that holds the step takes all of it at the end."""
    if settings.barrier == "batch":
        return 0.0, config.step_s + settings.groups_per_step * config.group_s
    return config.group_s, config.step_s


def settings_of(config: WorldConfig, **settings: Any) -> RlConfig:
    """Settings of training in this world, with groups of four."""
    pools = {JUDGE: config.judges} if config.judge_s else {}
    return RlConfig(**{"sampling": SAMPLING, "trainer": TRAINER, "group_size": 4, "seed": 0, "pools": pools, **settings})


async def run_scripted(config: WorldConfig, settings: RlConfig, path: Path) -> Traced:
    """Train in this world, over as many tasks as groups are trained.

    Args:
        config: how long everything takes.
        settings: of the training.
        path: the file of its trace.
    """
    parts = scripted_parts(config, settings.max_concurrency, settings.steps * settings.groups_per_step)
    return await traced(training(config, settings, parts), path, parts.engine)


async def warm_up(config: WorldConfig, folder: Path) -> None:
    """Train two steps that nobody measures: the first training of a process loads and compiles things that others find there.

    Args:
        config: of the world; its delays are left out.
        folder: for the trace.
    """
    quick = config.model_copy(update={"delays": DelaysConfig(seconds=(0.0,), shares=(1.0,)), "group_s": 0.0, "step_s": 0.0})
    settings = settings_of(quick, steps=2, groups_per_step=2, max_concurrency=4)
    await run_scripted(quick, settings, folder / "warm-up.pftrace")


class Sleeps:
    """``Times`` of a world by its draws alone, as if nothing else took any.

    Args:
        config: of the world.
        settings: of the training.
        tasks: id of the task by number of the group.
    """

    def __init__(self, config: WorldConfig, settings: RlConfig, tasks: Mapping[int, str]) -> None:
        self._config, self._tasks = config, tasks
        group_s, step_s = pace_of(config, settings)
        self._others = {"rewards": config.judge_s, "add": group_s, "finish": step_s, "load": config.load_s}

    def seconds(self, node: str, path: tuple[int, ...], retry: int = 0) -> float:
        """See ``Times``."""
        if node != "episodes":
            return self._others.get(node, 0.0)
        number, member = path
        if self.fails(node, path, retry):
            return 0.0
        return 2 * self._config.decode_s + delay_of(self._config.delays, self._tasks[number], member, 0)

    def fails(self, node: str, path: tuple[int, ...], retry: int = 0) -> bool:
        """See ``Times``."""
        if node != "episodes" or retry:
            return False
        return fails_at_once(self._config.failing, self._config.delays.seed, self._tasks[path[0]], path[1])


def _rewards(config: WorldConfig, chat: Chat) -> Function | Mapping[str, tuple[Function, float]]:
    if not config.judge_s:
        return exact_answer
    policy = _Sleeping(ScriptedPolicy(chat, [Message("assistant", "1")]), config.judge_s)
    judge = Judge(policy, chat, JudgeConfig(cache_size=0), asks=_asked, reads=float)
    # Weighed 0: what it says is the same of everybody, and it is there for its time.
    return {"answer": (exact_answer, 1.0), "judge": (ContextReward(judge), 0.0)}


def _asked(episode: Episode) -> tuple[Message, ...]:
    return (Message("user", episode.task.prompt),)


def _right(text: str, turn: int) -> Message:
    """Ask the tool what the user asked, then say what it said. Marks are shown in the text."""
    if turn == 0:
        return Message("assistant", "", (ToolCall("call", "calculator", {"expression": _between(text, "user")}),))
    return Message("assistant", _between(text, "tool"))


def _wrong(text: str, turn: int) -> Message:
    return _right(text, turn) if turn == 0 else Message("assistant", "0")


def _between(text: str, mark: str) -> str:
    """What stands behind a mark."""
    found = re.search(rf"<\|{mark}\|>([^<]*)", text)
    assert found is not None, text
    return found[1]


class _Sleeping:
    """Another policy, each of whose turns takes so long."""

    def __init__(self, policy: ScriptedPolicy, seconds: float) -> None:
        self._policy, self._seconds, self.context_length = policy, seconds, policy.context_length

    async def sample(self, request: SampleRequest) -> Sample:
        await anyio.sleep(self._seconds)
        return await self._policy.sample(request)

    def release(self, session: str) -> None: ...

    def abort(self, session: str) -> None: ...
