"""Lines of stages as plain values, and how long their work takes: what the event model is given, and what is held to it."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol


class Times(Protocol):
    """How long everything takes and what fails, as a function of who does what.

    Nodes are called by their names; the sink's times are ``add`` by item, ``finish`` by (step,) from 0, and those of its cell
    ``load`` by (version,) from 1.
    """

    def seconds(self, node: str, path: tuple[int, ...], retry: int = 0) -> float:
        """Service time of one attempt."""
        ...

    def fails(self, node: str, path: tuple[int, ...], retry: int = 0) -> bool:
        """Whether that attempt fails."""
        ...


@dataclass(frozen=True)
class Drawn:
    """``Times`` that are drawn, so that two who ask draw the same.

    Attributes:
        kind: constant, exponential, or Pareto with shape 1.5, cut at 20 times its mean so that no single draw decides a run.
        means: mean seconds by node; 0 for the nodes left out.
        failing: share of the attempts of ``work`` nodes that fail at their end.
        seed: of the draws.
        oversleep_s: added to all that take any time, for a clock that wakes late.
    """

    kind: Literal["constant", "exponential", "pareto"]
    means: Mapping[str, float]
    failing: float = 0.0
    seed: int = 0
    oversleep_s: float = 0.0

    def seconds(self, node: str, path: tuple[int, ...], retry: int = 0) -> float:
        """See ``Times``."""
        mean = self.means.get(node, 0.0)
        if not mean:
            return 0.0
        chance = random.Random(f"{self.seed} {node} {path} {retry}").random()
        return mean * self._share(chance) + self.oversleep_s

    def _share(self, chance: float) -> float:
        """The quantile of this kind with mean 1."""
        if self.kind == "constant":
            return 1.0 + 1e-6 * chance  # two that began together end one after the other, in an order both sides know
        if self.kind == "exponential":
            return -math.log(1.0 - chance)
        return min(20.0, (1.0 - chance) ** (-1 / 1.5) / 3.0)

    def fails(self, node: str, path: tuple[int, ...], retry: int = 0) -> bool:
        """See ``Times``."""
        return self.failing > 0 and random.Random(f"{self.seed} fails {node} {path} {retry}").random() < self.failing


@dataclass(frozen=True)
class Work:
    """A stage: ``capacity`` bounds the edge before it, ``needs`` are pool units held while it works."""

    name: str
    workers: int
    capacity: int
    needs: Mapping[str, int] = field(default_factory=dict)
    reads: bool = False


@dataclass(frozen=True)
class Line:
    """A graph of the one shape the model knows.

    Attributes:
        name: for reports.
        before: stages before the repeat.
        members: stages between repeat and barrier; none where ``size`` is 0.
        after: stages behind the barrier.
        batch: items (groups, where there are groups) a step.
        steps: steps after which the run is over. The source never ends.
        size: members of a group; 0: no groups.
        missing: what becomes of a group with a failed member; ``retry`` issues it again, then drops; ``shrink`` needs two.
        retries: how often a member is issued again.
        pools: units by name.
        max_lag: ``None``: no feedback and no tickets.
        late: as in ``flow.Freshness``.
        order: with ``max_lag=0``: whether a step takes its groups in the order of birth, as the engine does, or of arrival.
        depth: versions' worth of tickets beyond the first; ``None``: ``max_lag``. As in ``flow.Freshness``.
        capacities: of the edges before ``repeat``, ``barrier`` and ``sink`` that are not as the engine makes them by itself.
    """

    name: str
    batch: int
    steps: int
    before: tuple[Work, ...] = ()
    members: tuple[Work, ...] = ()
    after: tuple[Work, ...] = ()
    size: int = 0
    missing: Literal["drop", "shrink", "retry"] = "drop"
    retries: int = 1
    pools: Mapping[str, int] = field(default_factory=dict)
    max_lag: int | None = None
    late: Literal["wait", "drop"] = "wait"
    order: Literal["birth", "arrival"] = "birth"
    depth: int | None = None
    capacities: Mapping[str, int] = field(default_factory=dict)

    @property
    def tickets(self) -> int:
        """Groups that may be open at once."""
        depth = self.max_lag if self.depth is None else self.depth
        return 1 << 60 if depth is None else (depth + 1) * self.batch

    def nodes(self) -> list[tuple[str, Work]]:
        """Kinds and stages in order, without the source."""
        line = [("work", stage) for stage in self.before]
        if self.size:
            line += [("repeat", self._passing("repeat", 2)), *(("work", stage) for stage in self.members)]
            line += [("barrier", self._passing("barrier", 2)), *(("work", stage) for stage in self.after)]
        return [*line, ("sink", self._passing("sink", 2 if self.max_lag is None else self.tickets))]

    def _passing(self, kind: str, capacity: int) -> Work:
        return Work(kind, 1, self.capacities.get(kind, capacity))
