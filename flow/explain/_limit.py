"""What limits a run right now, from two looks at its counts. A trace tells more (``_verdict``); this needs none."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from .._core.meter import State
from .._summary import NodeSummary, Summary

_BUSY = 0.7
"""Share of its workers' time from which a node counts as used up."""
_WAITED = 0.2
"""Share of its workers' time from which a wait for a pool counts as what uses a node up."""


@dataclass(frozen=True)
class Limit:
    """What the rest of a graph waits for.

    Attributes:
        kind: ``stage``, a source or sink too: its workers are busy. ``pool``: they are, or wait for units of a pool.
            ``tickets``: nobody is, and no group may be opened before newer weights are in force.
        name: of the node.
        share: of its workers' time that went there, from 0 to 1.
        text: the same in words.
    """

    kind: Literal["stage", "pool", "tickets"]
    name: str
    share: float
    text: str


def limit(then: Summary, now: Summary) -> Limit | None:
    """Say what limited a run between two looks at it.

    Args:
        then: the earlier one, of the same run.
        now: the later one.

    Returns:
        What was most used up; ``None`` where no worker spent any time.
    """
    shares = {name: _spent(then.nodes.get(name), node) for name, node in now.nodes.items()}
    # Of two that are equally busy the later one: whoever comes before it would only fill the edge between them.
    found = max((_of_node(name, spent) for name, spent in reversed(shares.items())), key=lambda each: each.share, default=None)
    if found is None or not any(sum(spent.values()) for spent in shares.values()):
        return None
    held = max(((spent.get("ticket", 0.0), name) for name, spent in shares.items()), default=(0.0, ""))
    if found.share < _BUSY and held[0] > _BUSY:
        text = f"{held[1]} may open no group {held[0]:.0%} of the time: all tickets are out, until newer weights are in force"
        return Limit("tickets", held[1], held[0], text)
    return found


def _of_node(name: str, spent: Mapping[State, float]) -> Limit:
    work, pool = spent.get("work", 0.0), spent.get("pool", 0.0)
    if pool >= _WAITED:
        return Limit("pool", name, work + pool, f"{name} waits for its pool {pool:.0%} of the time, and works {work:.0%}")
    return Limit("stage", name, work, f"{name} is at work {work:.0%} of the time")


def _spent(then: NodeSummary | None, now: NodeSummary) -> dict[State, float]:
    """Share of worker time by state between two looks; empty where none was spent."""
    before: dict[State, float] = {}
    if then is not None:
        before = {state: share * then.seconds for state, share in then.shares.items()}
    seconds: dict[State, float] = {
        state: max(0.0, share * now.seconds - before.get(state, 0.0)) for state, share in now.shares.items()
    }
    total = sum(seconds.values())
    return dict[State, float]() if total <= 0 else {state: each / total for state, each in seconds.items()}
