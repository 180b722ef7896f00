"""Bounds a user declares: of edges, of collectors, of staleness; and where a node's code runs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Capacity:
    """Bound of an edge: in items, in cost, or both. Build one as ``Items(64) | Cost(4_000_000, tokens)``."""

    items: int | None = None
    cost: float | None = None
    measure: Callable[[Any], float] | None = None

    def __or__(self, other: "Capacity") -> "Capacity":
        return Capacity(
            self.items if self.items is not None else other.items,
            self.cost if self.cost is not None else other.cost,
            self.measure or other.measure,
        )

    def __str__(self) -> str:
        parts = [] if self.items is None else [f"{self.items}"]
        parts += [] if self.cost is None else [f"cost {self.cost:g}"]
        return ", ".join(parts) or "default"


def Items(most: int) -> Capacity:  # noqa: N802 - reads as a constructor of Capacity
    """At most this many items on the edge."""
    return Capacity(items=most)


def Cost(most: float, measure: Callable[[Any], float]) -> Capacity:  # noqa: N802 - as above
    """At most this much cost on the edge, as ``measure(value)`` gives it. A single heavier item may enter an empty edge."""
    return Capacity(cost=most, measure=measure)


@dataclass(frozen=True)
class Collect:
    """A sink takes its input in steps of a fixed number of items.

    Attributes:
        items: items in a step.
        steps: the run is complete after this many steps; ``None`` runs until the sources end.
        end: what happens to the items of a step that cannot fill up: ``drop`` them, counted, or ``train`` on a short step.
    """

    items: int
    steps: int | None = None
    end: Literal["drop", "short"] = "drop"


@dataclass(frozen=True)
class Freshness:
    """How stale an item may be when it is consumed, as a property of a feedback edge.

    Attributes:
        max_lag: most versions between the dispatch of an item and the step that consumes it. 0: every item of a step was made
            with the newest version.
        depth: steps of groups that may be on their way beside the one under way, from 0 to ``max_lag``, which ``None`` means.
            Items are about as old as this on average, since a run fills what it may. A ``max_lag`` above it leaves slow groups
            time without making the others older, so steps wait less for them.
        late: ``wait``: a step waits for items that would otherwise become too old, so nothing is dropped for age. ``drop``:
            a step takes what is ready, and what became too old is dropped and counted, which biases against slow items.
    """

    max_lag: int = 1
    late: Literal["wait", "drop"] = "wait"
    depth: int | None = None


@dataclass(frozen=True)
class Inline:
    """The stage runs on the event loop."""


@dataclass(frozen=True)
class Threads:
    """The stage's synchronous code runs on threads of its own, one per worker."""


@dataclass(frozen=True)
class Processes:
    """The stage runs in spawned processes, as many as the node has workers, one attempt at a time in each.

    The stage crosses once, by pickle. Inputs and outputs cross as msgspec, so both need a type that msgspec knows: structs,
    dataclasses, built-in types and containers of these. A part of them that is typed ``Any`` arrives as plain built-in values.
    For stages and for sinks that take item by item.
    """


Placement = Inline | Threads | Processes
