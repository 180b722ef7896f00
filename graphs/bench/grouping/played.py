"""Plays the cases: the graph of ``rl.py`` and its trainer, a scripted policy, a tool that does not answer, real deadlines."""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import anyio

from flow import Graph, Run, Summary
from graphs.bench.grouping.cases import FAILING, GROUPS, MAX_LAG, MEMBERS, ON_ERROR, SLOW, STEPS, Case, LateCase, Outcome
from graphs.bench.plain import PlainForward, forced
from graphs.bench.small import SMALL
from graphs.bench.witnessed import SeenStep, witnessed
from graphs.calculator import calculator
from graphs.parts import Parts
from graphs.rl import rl
from graphs.rl_config import RlConfig
from graphs.seeds import seeded
from stages.agents.guards import TimeLimits
from stages.envs.housed import on_loop
from stages.envs.tool_env import ToolEnv
from stages.episodes import Episodes
from stages.outcomes import Outcomes
from stages.records import Message, ToolCall
from stages.tools.calculator import calculator_tool
from stages.tools.tool import Tool, ToolAnswer, needs_of

Waits = Callable[[int, int, int], float]
"""(birth, member, retry) -> seconds that the tool takes to answer."""
LAST = MEMBERS - 1
"""Index of the member that fails, or is slow."""
LONG_S = 3600.0
"""Seconds that a tool takes which does not answer: no run waits for it."""


class LateTool:
    """A tool that answers some members late."""

    def __init__(self, tool: Tool, waits: Waits) -> None:
        self.name, self.description, self.parameters, self.needs = tool.name, tool.description, tool.parameters, needs_of(tool)
        self._tool, self._waits = tool, waits

    async def call(self, arguments: Mapping[str, Any], key: tuple[int, ...]) -> ToolAnswer:
        """See ``Tool.call``."""
        _, birth, member, retry, *_ = key
        await anyio.sleep(self._waits(birth, member, retry))
        return await self._tool.call(arguments, key)


@dataclass(frozen=True)
class Played:
    """How a case went.

    Attributes:
        outcome: what came of it.
        steps: births of the groups of each step.
        lags: of each trained group, in versions, by birth.
        statuses: of the episodes that the trainer was told of.
        drawn: tasks that were drawn, by how they ended.
        seconds: of the graph at work.
    """

    outcome: Outcome
    steps: tuple[tuple[int, ...], ...]
    lags: Mapping[int, int | None]
    statuses: Mapping[str, int]
    drawn: Mapping[str, int]
    seconds: float


@dataclass(frozen=True)
class Ground:
    """What all cases are played on.

    Attributes:
        parts: model, engine and tasks. The engine is to be opened by whoever plays.
        forward: says how likely what is said was; compiled, so that no deadline passes meanwhile.
    """

    parts: Parts
    forward: PlainForward


def ground() -> Ground:
    """Make it, the model loaded."""
    parts = calculator(SMALL).parts
    assert parts is not None
    parts.load()
    return Ground(parts, PlainForward(parts.model, parts.engine.context_length))


async def play(case: Case, ground: Ground, limit_s: float) -> Played:
    """Play a case.

    Args:
        case: the policy, and how often a member fails.
        ground: its engine is open.
        limit_s: the deadline that a member runs into.
    """

    def waits(birth: int, member: int, retry: int) -> float:
        return LONG_S if birth in FAILING and member == LAST and retry < case.attempts else 0.0

    graph = _graph(ground, waits, TimeLimits(step_s=limit_s if case.deadline == "step" else None), max_lag=0)
    if case.deadline == "node":
        graph = graph.with_("episodes", deadline_s=limit_s, on_error=ON_ERROR)
    return await _played(graph.with_("groups", missing=case.missing), ground.parts)


async def play_late(case: LateCase, ground: Ground) -> Played:
    """Play a case of a slow member. Arguments as those of ``play``."""
    delay_s = LONG_S if case.delay_s is None else case.delay_s

    def waits(birth: int, member: int, retry: int) -> float:
        return delay_s if birth == SLOW and member == LAST else 0.0

    graph = _graph(ground, waits, TimeLimits(step_s=None), max_lag=MAX_LAG, late=case.late)
    return await _played(graph.with_("episodes", deadline_s=math.inf), ground.parts)


def said(conversation: str, key: tuple[int, int, int, int, int]) -> str | Message:
    """What a member says: all but one ask the tool; the first and the last answer with what it gave, the others are wrong."""
    _, _, member, _, turn = key
    expression = conversation.split("<|user|>")[1].split("<|")[0]
    if member == 1:
        return "0"
    if turn == 0:
        return Message("assistant", "", (ToolCall(f"call-{turn}-0", "calculator", {"expression": expression}),))
    return "0" if member == 2 else conversation.split("<|tool|>")[-1].split("<|")[0]


def _graph(ground: Ground, waits: Waits, limits: TimeLimits, **changes: Any) -> Graph:
    parts = ground.parts
    tool = LateTool(calculator_tool(), waits)
    sizes = {"steps": STEPS, "groups_per_step": GROUPS, "group_size": MEMBERS, "limits": limits}
    config: RlConfig = seeded(SMALL.model_copy(update={"rl": SMALL.rl.model_copy(update=sizes | changes)})).rl
    late = replace(parts, make_env=on_loop(lambda task: ToolEnv([tool])), tools=(tool,))
    episodes = Episodes(
        forced(ground.forward, parts, said), late.chat, late.agent, late.make_env, config.sampling, config.limits
    )
    return rl(config, late).replace("episodes", episodes)


async def _played(graph: Graph, parts: Parts) -> Played:
    parts.load()
    steps: list[SeenStep] = []
    outcomes = Outcomes()
    run = Run(witnessed(graph, steps.append).build(quiet=True), tally=outcomes)
    summary = await run.finish()
    batches = [batch for step in steps for batch in step.batches]
    statuses = Counter(episode.status.value for batch in batches for episode in batch.episodes)
    drawn = next(iter(outcomes.report().values()))
    admission = run.state.nodes["trainer"].admission
    assert admission is not None
    groups = summary.nodes["groups"]
    outcome = Outcome(
        trained=tuple(batch.birth for batch in batches), sizes=tuple(len(batch.segments) for batch in batches),
        dropped=dict(groups.dropped), lost=dict(groups.lost), failed=statuses["timed_out"], retried=groups.retried,
        returned=admission.dropped, opened=summary.groups["groups"].opened, balanced=_balanced(summary, drawn),
    )  # fmt: skip
    return Played(
        outcome,
        tuple(tuple(batch.birth for batch in step.batches) for step in steps),
        {batch.birth: lag for step in steps for batch, lag in zip(step.batches, step.lags, strict=True)},
        dict(statuses), drawn["ends"], summary.seconds,
    )  # fmt: skip


def _balanced(summary: Summary, drawn: Mapping[str, Any]) -> bool:
    """The ledger of the run, and that of the tasks."""
    return summary.balanced and not summary.open_groups["groups"] and drawn["drawn"] == sum(drawn["ends"].values())
