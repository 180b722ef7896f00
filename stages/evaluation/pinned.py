"""Which version is being evaluated, and the swap of weights that waits until it is: ``load`` of the weights cell.

The branch that asks the questions is in ``branch.py``. An engine serves one version at a time, so an evaluation of version 7
on the engine that training samples from must be over before version 8 is loaded. Episodes of training go on meanwhile: they are
of version 7 too. Only the next swap waits, as *sync wait*, and not past the deadline of the evaluation.
"""

import math
from dataclasses import dataclass, field
from typing import Protocol

import anyio

from stages.records import LoadWeights, Weights

COUNT_S = 10.0
"""What an evaluation that is given up gets to be counted, its episodes cut short, before the next weights are loaded."""
TRACK = "weights (sync wait)"
"""Track of the trace on which a swap waits."""


class Trace(Protocol):
    """Where spans go; as that of the engine, with times in nanoseconds of the loop's clock."""

    def begin(self, track: str, name: str, ns: int) -> None:
        """A span starts."""
        ...

    def end(self, track: str, ns: int) -> None:
        """The newest open span ends."""
        ...


@dataclass(eq=False)
class Evaluation:
    """One evaluation.

    Attributes:
        version: what is evaluated.
        weights: the same, as they were loaded.
        since: loop time at which it was asked for.
        deadline: loop time at which it is given up.
        num_cut: episodes that were not played to their end for that.
        held_s: seconds that the next swap has waited for it.
    """

    version: int
    weights: Weights
    since: float
    deadline: float
    num_cut: int = 0
    held_s: float = 0.0
    held_since: float | None = None
    over: anyio.Event = field(default_factory=anyio.Event)


class PinnedEvaluation:
    """Decides which versions are evaluated and holds later ones back until that is done. One for a run.

    Args:
        load: puts weights in force, as ``Engine.load``.
        every: versions between two evaluations; ``None`` evaluates nothing, and every swap goes through.
        last: the version that training ends with, which is always evaluated.
        first: whether the version that training begins with is.
        deadline_s: seconds after which an evaluation is given up; ``None`` for any.
        trace: where waits of a swap are shown; ``None`` for nowhere.

    Attributes:
        running: the evaluation under way; ``None`` for none.
        most: evaluations of a run in which no version is overtaken.
        num_given_up: evaluations that were.
    """

    def __init__(
        self,
        load: LoadWeights,
        *,
        every: int | None,
        last: int,
        first: bool = True,
        deadline_s: float | None = None,
        trace: Trace | None = None,
    ) -> None:
        self._load, self._every, self._last, self._trace = load, every, last, trace
        self._next = 0 if first else every or 0
        self.most = 0 if every is None else first + math.ceil(last / every)
        self._deadline_s = math.inf if deadline_s is None else deadline_s
        self.running: Evaluation | None = None
        self.num_given_up = 0

    @property
    def waiting(self) -> str | None:
        """What a swap waits for, for the stall report."""
        held = self.running is not None and self.running.held_since is not None
        return f"waits for the evaluation of version {self.running.version}" if held and self.running else None

    @property
    def deadline(self) -> float:
        """Loop time at which the evaluation under way is given up; infinite where there is none, or no limit."""
        return math.inf if self.running is None else self.running.deadline

    def is_of(self, version: int) -> bool:
        """Whether this version is being evaluated."""
        return self.running is not None and self.running.version == version

    async def load(self, weights: Weights, version: int) -> None:
        """Put weights in force, once nothing that is pinned to the old ones is under way.

        Cancelled, it changes nothing, or the load has its own rule for it.
        """
        await self._hold()
        await self._load(weights, version)
        # One that is given up may still be counted up by its branch; the next due version then follows later.
        if self.running is None and self._is_due(version):
            assert self._every is not None
            self._next = (version // self._every + 1) * self._every
            now = anyio.current_time()
            self.running = Evaluation(version, weights, now, now + self._deadline_s)

    def end(self) -> Evaluation:
        """The evaluation under way is over: what waits goes on. Gives what is known of it."""
        evaluation, self.running = self.running, None
        assert evaluation is not None, "an evaluation ends once"
        if evaluation.held_since is not None:
            evaluation.held_s += anyio.current_time() - evaluation.held_since
            evaluation.held_since = None
        self.num_given_up += evaluation.num_cut > 0
        evaluation.over.set()
        return evaluation

    def _is_due(self, version: int) -> bool:
        return self._every is not None and (version >= self._next or version == self._last)

    async def _hold(self) -> None:
        running = self.running
        if running is None:
            return
        running.held_since = began = anyio.current_time()
        self._mark(began=True)
        try:
            with anyio.move_on_at(running.deadline + COUNT_S):
                await running.over.wait()
        finally:
            self._mark(began=False)
            if running.held_since is not None:  # given up, or cancelled
                running.held_s += anyio.current_time() - began
                running.held_since = None

    def _mark(self, *, began: bool) -> None:
        if self._trace is not None:
            now_ns = int(anyio.current_time() * 1e9)
            if began:
                self._trace.begin(TRACK, "sync wait", now_ns)
            else:
                self._trace.end(TRACK, now_ns)
