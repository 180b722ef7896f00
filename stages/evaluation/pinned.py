"""Which version is being evaluated, and the swap of weights that waits until it is: the load of the weights cell.

The branch that asks the questions is in ``branch.py``. An engine serves one version at a time, so an evaluation of version 7
on the engine that training samples from must be over before version 8 is loaded. Episodes of training go on meanwhile: they are
of version 7 too. Only the next swap waits, as *sync wait*, and not past the deadline of the evaluation.

A run that goes on goes on with the evaluation that was under way, over the weights it had: they are in the commit beside those
of the trainer, which may be newer.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import msgspec

from flow.trace import current_recorder
from stages.checkpoint.store import load_arrays, save_arrays
from stages.records import LoadWeights, Weights

COUNT_S = 10.0
"""What an evaluation that is given up gets to be counted, its episodes cut short, before the next weights are loaded."""
TRACK = "weights (sync wait)"
"""Track of the trace on which a swap waits."""
WEIGHTS = "weights"
"""Folder of those that are evaluated, in a commit."""


@dataclass(eq=False)
class Evaluation:
    """One evaluation.

    Attributes:
        version: what is evaluated.
        weights: the same, as they were loaded.
        since: loop time at which it was asked for.
        deadline: loop time at which it is given up.
        cut: episodes that were not played to their end for that: (birth, member).
        held_s: seconds that the next swap has waited for it.
        in_force: whether its weights are; not where it is given up and the next swap has gone past it.
    """

    version: int
    weights: Weights
    since: float
    deadline: float
    cut: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    held_s: float = 0.0
    held_since: float | None = None
    in_force: bool = True
    over: anyio.Event = field(default_factory=anyio.Event)

    def held_until(self, now: float) -> float:
        """Seconds that the next swap has waited for it until then."""
        return self.held_s + (0.0 if self.held_since is None else now - self.held_since)


class UnderWay(msgspec.Struct, frozen=True):
    """The state of an evaluation under way; see ``Evaluation``.

    Attributes:
        elapsed_s: seconds since it was asked for.
    """

    version: int
    elapsed_s: float
    held_s: float
    cut: tuple[tuple[int, int], ...]
    in_force: bool


class PinnedState(msgspec.Struct, frozen=True):
    """Where evaluations are.

    Attributes:
        latest: the version whose evaluation was begun last; ``None`` for none.
        num_given_up: evaluations that were.
        running: the evaluation under way.
    """

    latest: int | None
    num_given_up: int
    running: UnderWay | None


class PinnedEvaluation:
    """Decides which versions are evaluated and holds later ones back until that is done. One for a run.

    Args:
        load: puts weights in force, as ``Engine.load``.
        every: versions between two evaluations; ``None`` evaluates nothing, and every swap goes through.
        last: the version that training ends with, which is always evaluated.
        first: whether the version that training begins with is.
        deadline_s: seconds after which an evaluation is given up; ``None`` for any.
        like: gives weights in the layout of those that are loaded, for a run that goes on; ``None`` for one that never does.

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
        like: Callable[[], Weights] | None = None,
    ) -> None:
        self._load, self._every, self._last, self._like = load, every, last, like
        self._first = first
        self._latest: int | None = None
        self._loaded: Weights | None = None
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

    async def swap(self, weights: Weights, version: int) -> None:
        """Put weights in force, once nothing that is pinned to the old ones is under way.

        Cancelled, it changes nothing, or the load has its own rule for it.
        """
        if self.is_of(version):  # in a run that goes on, which does not wait for what it is there for
            await self._load(weights, version)
            return
        await self._hold()
        if self.running is not None:
            self.running.in_force = False
        await self._load(weights, version)
        # One that is given up may still be counted up by its branch; the next due version then follows later.
        if self.running is None and self._is_due(version):
            self._latest, now = version, anyio.current_time()
            self.running = Evaluation(version, weights, now, now + self._deadline_s)

    @property
    def held(self) -> tuple[int, Weights] | None:
        """What a run that goes on begins with: the weights that are being evaluated."""
        running = self.running
        return (running.version, running.weights) if running is not None and running.in_force else None

    def state(self) -> PinnedState:
        """Where evaluations are; the weights of the one under way go with ``save``."""
        running, under_way = self.running, None
        if running is not None:
            now, cut = anyio.current_time(), tuple(sorted(running.cut))
            held_s = running.held_until(now)
            under_way = UnderWay(running.version, now - running.since, held_s, cut, running.in_force)
        return PinnedState(self._latest, self.num_given_up, under_way)

    def restore(self, state: PinnedState) -> None:
        """Go on where evaluations were. The time that one has had counts, and not that in which nothing ran.

        Raises:
            ValueError: one was under way, and there are no weights for it.
        """
        self._latest, self.num_given_up, self.running = state.latest, state.num_given_up, None
        under_way = state.running
        if under_way is None:
            return
        if self._loaded is None:
            raise ValueError(
                f"expected the weights of version {under_way.version}, whose evaluation was under way, got none, in "
                "PinnedEvaluation.restore; resume from a commit that holds them"
            )
        since = anyio.current_time() - under_way.elapsed_s
        self.running = Evaluation(
            under_way.version, self._loaded, since, since + self._deadline_s, set(under_way.cut), under_way.held_s,
            in_force=under_way.in_force,
        )  # fmt: skip

    def save(self, folder: Path) -> Callable[[], None]:
        """Give what writes the weights that are being evaluated. Nobody donates what was published, so it need not be taken."""
        parts = None if self.running is None else _parts(self.running.weights)

        def write() -> None:
            folder.mkdir(parents=True)
            if parts is not None:
                save_arrays(folder / WEIGHTS, parts)()

        return write

    def load(self, folder: Path) -> None:
        """Take weights over again, if some were being evaluated.

        Raises:
            ValueError: they are those of another model.
        """
        self._loaded = None
        if (folder / WEIGHTS).exists():
            assert self._like is not None, "who goes on says in which layout"
            self._loaded = Weights(**load_arrays(folder / WEIGHTS, _parts(self._like())))

    def end(self) -> Evaluation:
        """The evaluation under way is over: what waits goes on. Gives what is known of it."""
        evaluation, self.running = self.running, None
        assert evaluation is not None, "an evaluation ends once"
        evaluation.held_s, evaluation.held_since = evaluation.held_until(anyio.current_time()), None
        self.num_given_up += bool(evaluation.cut)
        evaluation.over.set()
        return evaluation

    def _is_due(self, version: int) -> bool:
        if self._every is None or (self._latest is not None and version <= self._latest):
            return False
        before = self._latest if self._latest is not None else -1 if self._first else 0
        return version >= (before // self._every + 1) * self._every or version == self._last

    async def _hold(self) -> None:
        running = self.running
        if running is None:
            return
        running.held_since = began = anyio.current_time()
        recorder = current_recorder()
        if recorder is not None:
            recorder.begin(recorder.track(TRACK), "sync wait", int(began * 1e9), {"version": running.version})
        try:
            with anyio.move_on_at(running.deadline + COUNT_S):
                await running.over.wait()
        finally:
            if recorder is not None:
                recorder.end(recorder.track(TRACK), int(anyio.current_time() * 1e9))
            if running.held_since is not None:  # given up, or cancelled
                running.held_s += anyio.current_time() - began
                running.held_since = None


def _parts(weights: Weights) -> dict[str, Any]:
    return {name: part for name, part in msgspec.structs.asdict(weights).items() if part is not None}
