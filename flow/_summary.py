"""What a run leaves behind: counts, time shares, how it ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ._core.groups import Groups
from ._core.meter import State
from ._core.node import NodeState
from ._core.state import State as Moment
from ._lane import Lane

Status = Literal["completed", "drained", "suspended", "failed"]
"""``drained`` is completed too, with sources that were asked to end early: it must not read as if all had been done."""


@dataclass(frozen=True)
class NodeSummary:
    """One node.

    Attributes:
        taken: inputs taken; for a source, 0.
        emitted: outputs put on the edge behind it; for a collecting sink, steps.
        dropped: inputs (for a barrier, groups) dropped, by reason.
        lost: members given up inside a barrier, by reason.
        retried: failures followed by a retry; of a barrier, members that it had issued again.
        given_back: attempts given up by a cancel.
        recalled: attempts that what a journal knew of an earlier one stood in for.
        failures: kinds of error with the first traceback of each.
        shares: share of worker time by state; they add up to 1.
        seconds: worker time.
        depth: items waiting before it now.
        high_water: most items that ever waited before it.
    """

    taken: int
    emitted: int
    dropped: Mapping[str, int]
    lost: Mapping[str, int]
    retried: int
    given_back: int
    recalled: int
    failures: Mapping[str, str]
    shares: Mapping[State, float]
    seconds: float
    depth: int
    high_water: int


@dataclass(frozen=True)
class GroupsSummary:
    """The open groups of one barrier.

    Attributes:
        opened: groups ever opened, which is the birth number of the next.
        oldest: birth number of the oldest that is open; ``None`` where none is.
        half_filled: open ones of which a member has reported and another has not.
    """

    opened: int
    oldest: int | None
    half_filled: int


@dataclass(frozen=True)
class Summary:
    """A run, so far or at its end.

    Attributes:
        graph: name of the graph.
        status: how it ended; ``None`` while it runs.
        seconds: wall time of the graph at work, opening and closing stages left out.
        nodes: by name, in order of declaration.
        versions: newest version published, by cell.
        open_groups: groups opened and not closed, by barrier.
        leftovers: items in no terminal state, by place; empty after a completed run.
        faults: counts that do not add up; empty when the ledger balances.
        pools: units each pool has at last, which an adaptive pool found by itself.
        abandoned: tasks and threads that did not end in time and were left behind, each with the line it is in.
        groups: what is known of the open ones, by barrier.
    """

    graph: str
    status: Status | None
    seconds: float
    nodes: Mapping[str, NodeSummary]
    versions: Mapping[str, int]
    open_groups: Mapping[str, int]
    leftovers: Mapping[str, int]
    faults: tuple[str, ...]
    abandoned: tuple[str, ...] = ()
    pools: Mapping[str, int] = field(default_factory=dict[str, int])
    groups: Mapping[str, GroupsSummary] = field(default_factory=dict[str, GroupsSummary])

    def __str__(self) -> str:
        return table(self)

    @property
    def balanced(self) -> bool:
        """Whether every item is accounted for."""
        return not self.faults and not (self.status in ("completed", "drained") and self.leftovers)


def summarise(
    state: Moment, status: Status | None, seconds: float, abandoned: Sequence[str] = (), lanes: Sequence[Lane] = ()
) -> Summary:
    """Read the counts of a run.

    Args:
        state: its moment.
        status: how it ended; ``None`` while it runs.
        seconds: at work.
        abandoned: places of what was left behind.
        lanes: those of its workers. What each is at now counts too: an attempt may take longer than the time between two looks.
    """
    under_way = {name: dict[State, float]() for name in state.nodes}
    for lane in lanes:
        if lane.open:
            spent = under_way[lane.node]
            spent[lane.state] = spent.get(lane.state, 0.0) + max(0.0, lane.clock() - lane.since)
    barriers = {
        name: node.groups for name, node in state.nodes.items() if node.spec.kind == "group" and node.groups is not None
    }
    return Summary(
        graph=state.plan.spec.name,
        status=status,
        seconds=seconds,
        nodes={name: _node(node, under_way[name]) for name, node in state.nodes.items()},
        versions={name: cell.published for name, cell in state.cells.items()},
        open_groups={name: len(groups.open) for name, groups in barriers.items()},
        leftovers=state.leftovers(),
        faults=tuple(state.faults()),
        abandoned=tuple(abandoned),
        pools=dict(state.pools.sizes),
        groups={name: _groups(groups) for name, groups in barriers.items()},
    )


def _groups(groups: Groups) -> GroupsSummary:
    half = sum(bool(group.values or group.failures) for group in groups.open.values())
    return GroupsSummary(groups.opened, next(iter(groups.open), None), half)


def _node(node: NodeState, under_way: Mapping[State, float]) -> NodeSummary:
    meter = node.meter
    seconds: dict[State, float] = {state: spent + under_way.get(state, 0.0) for state, spent in meter.seconds.items()}
    total = sum(seconds.values())
    return NodeSummary(
        taken=sum(edge.taken for edge in node.inputs),
        emitted=sum(edge.put_count for edge in node.outputs) if node.outputs else meter.steps,
        dropped=dict(meter.dropped),
        lost=dict(meter.lost),
        retried=meter.retried,
        given_back=meter.given_back,
        recalled=meter.recalled,
        failures=dict(meter.failures),
        shares={state: spent / total if total else 0.0 for state, spent in seconds.items()},
        seconds=total,
        depth=sum(len(edge) for edge in node.inputs),
        high_water=max((edge.high_water for edge in node.inputs), default=0),
    )


def table(summary: Summary) -> str:
    """Write a summary for people: a line for each node, then what failed."""
    whole = (
        "every item accounted for" if summary.balanced else f"counts that do not add up: {summary.faults or summary.leftovers}"
    )
    lines = [f"graph {summary.graph}: {summary.status or 'running'} after {summary.seconds:.1f} s, {whole}"]
    width = max((len(name) for name in summary.nodes), default=0)
    for name, node in summary.nodes.items():
        counts = [f"{node.taken} in", f"{node.emitted} out"]
        counts += [f"{count} {reason}" for reason, count in (*node.dropped.items(), *node.lost.items())]
        counts += [f"{node.retried} retried"] if node.retried else []
        counts += [f"{node.recalled} recalled"] if node.recalled else []
        shares = sorted(((share, state) for state, share in node.shares.items() if share >= 0.01), reverse=True)
        lines.append(f"  {name:<{width}}  {', '.join(counts)}; " + ", ".join(f"{state} {share:.0%}" for share, state in shares))
    lines += [f"  pool {pool}: {units} units" for pool, units in summary.pools.items()]
    for name, node in summary.nodes.items():
        lines += [f"  {name}: {_last(trace) or kind}" for kind, trace in node.failures.items()]
    lines += [f"  left behind: {place}" for place in summary.abandoned]
    return "\n".join(lines)


def _last(trace: str) -> str:
    """The last line of a traceback, which says what it was."""
    return trace.strip().splitlines()[-1] if trace.strip() else ""
