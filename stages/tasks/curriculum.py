"""A source that draws more from where there is most to learn: buckets of tasks, chosen by how often they succeed.

A bucket that succeeds with probability p is weighted by p (1 - p), the variance of a reward of 0 or 1: what is always solved or
never teaches a group-relative rule nothing. Every bucket keeps a least share, so that one that was hopeless can be found again.

Observations come back in two strokes. ``Observed``, a stage behind the rewards (before anything is filtered: what a filter
drops is just what says that a bucket is too easy or too hard), tells each group; and when a step is complete,
``counted_before`` makes them count, in birth order, from a draw on that no source can have made yet. So the draws are a
function of what became of the groups, and not of when they came: with ``max_lag=0`` they are the same whatever the timing,
whichever groups are filtered.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from stages.records import Group, Task
from stages.tasks.mixture import TaskSource, restore_parts, stateful

Value = TypeVar("Value")
Load = Callable[[Value, int], Awaitable[None]]
"""What takes over a value of a cell and its version."""
_PARTS = 1 << 20
"""What a share is measured in: integers, so that nothing rounds on the way."""


class CurriculumConfig(BaseModel):
    """How buckets are chosen."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_share: float = Field(default=0.1, ge=0, le=1)
    """Least share of the draws of each bucket; over all of them at most 1."""
    window: int = Field(default=64, ge=1)
    """Groups that the success of a bucket is estimated from: a plain mean of up to so many, then a moving one."""
    success_reward: float = 1.0
    """A member with at least this reward has succeeded."""
    ahead: int = Field(default=8, ge=0)
    """Tasks that may be drawn and not opened: at least the capacity of the edge behind the source (which is to be declared:
    ``graph.edge(prompts, members, capacity=Items(8))``), one more with a source on a thread. So many draws later than it could,
    an observation counts."""


class Estimate(msgspec.Struct, frozen=True):
    """What is known of a bucket.

    Attributes:
        groups: groups it was made from, at most the window.
        success: share of their members that succeeded; one half before any.
    """

    groups: int = 0
    success: float = 0.5


class Observation(msgspec.Struct, frozen=True):
    """What became of one group.

    Attributes:
        birth: of the group.
        bucket: number of its bucket, in the order of names.
        success: share of the scored members that succeeded.
    """

    birth: int
    bucket: int
    success: float


class CurriculumState(msgspec.Struct, frozen=True):
    """Where a curriculum is: all that its next draws follow from.

    Attributes:
        names: of the buckets, in order.
        drawn: draws so far.
        credits: what each bucket is owed, in parts of a draw; adds up to 0.
        over: buckets that have ended.
        estimates: of each bucket.
        waiting: draw from which on they count, and observations, of completed steps.
        seen: observations of the step under way.
        version: newest version that ``counted_before`` was called with.
        num_late: observations that came after the draw from which they should count.
        parts: state of each bucket.
    """

    names: tuple[str, ...]
    drawn: int
    credits: tuple[int, ...]
    over: tuple[bool, ...]
    estimates: tuple[Estimate, ...]
    waiting: tuple[tuple[int, tuple[Observation, ...]], ...]
    seen: tuple[Observation, ...]
    version: int
    num_late: int
    parts: tuple[Any, ...]


class ObservedState(msgspec.Struct, frozen=True):
    """What a curriculum was told, at a moment that may be later than its latest draw. See ``CurriculumState``."""

    waiting: tuple[tuple[int, tuple[Observation, ...]], ...]
    seen: tuple[Observation, ...]
    version: int
    num_late: int


class Curriculum:
    """Buckets by name. ``Task.difficulty`` becomes the name.

    With k buckets and a least share s, each is drawn at least once in any k / s draws.

    Args:
        buckets: name -> source. One that ends leaves its share to the others.
        config: see ``CurriculumConfig``; ``None`` takes the defaults.

    Attributes:
        num_late: observations that came after the draw from which they should count, as with a lag above 0 or an ``ahead`` that
            is too small: they count from the next draw on, and which that is depends on timing.

    Raises:
        ValueError: no buckets, or their least shares exceed 1.
    """

    def __init__(self, buckets: Mapping[str, TaskSource], config: CurriculumConfig | None = None) -> None:
        self._config = config or CurriculumConfig()
        if not buckets or len(buckets) * self._config.min_share > 1:
            raise ValueError(
                f"expected at least one bucket, with least shares of at most 1 in all; got {len(buckets)} of "
                f"min_share={self._config.min_share:g}, in Curriculum; lower min_share or join buckets"
            )
        self._names = tuple(sorted(buckets))
        self._buckets = tuple(buckets[name] for name in self._names)
        number = len(self._names)
        self._drawn = self._version = self.num_late = 0
        self._credits, self._over = [0] * number, [False] * number
        self._estimates = [Estimate()] * number
        self._waiting: list[tuple[int, tuple[Observation, ...]]] = []
        self._seen: dict[int, Observation] = {}
        self._told: ObservedState | None = None

    @property
    def success(self) -> Mapping[str, float]:
        """Estimated success of each bucket, as far as it counts by now."""
        return {name: estimate.success for name, estimate in zip(self._names, self._estimates, strict=True)}

    @property
    def shares(self) -> Mapping[str, float]:
        """Share of the next draws of each bucket."""
        parts = self._parts()
        return {name: part / sum(parts) if any(parts) else 0.0 for name, part in zip(self._names, parts, strict=True)}

    def draw(self) -> Task:
        """The next task, of the bucket that is owed most.

        Raises:
            StopIteration: every bucket has ended.
        """
        while self._waiting and self._waiting[0][0] <= self._drawn:
            self._learn(self._waiting.pop(0)[1])
        while not all(self._over):
            parts = self._parts()
            owed = [credit + part for credit, part in zip(self._credits, parts, strict=True)]
            chosen = max((i for i in range(len(parts)) if not self._over[i]), key=lambda i: (owed[i], -i))
            try:
                task = self._buckets[chosen].draw()
            except StopIteration:
                self._over[chosen] = True
                self._credits = [0] * len(parts)
                continue
            owed[chosen] -= sum(parts)
            self._credits, self._drawn = owed, self._drawn + 1
            return msgspec.structs.replace(task, difficulty=self._names[chosen])
        raise StopIteration

    def observe(self, group: Group) -> None:
        """Take note of a scored group; it counts once its step is complete. Told twice, it counts once."""
        rewards = [episode.reward for episode in group.episodes if episode.reward is not None]
        difficulty = group.episodes[0].task.difficulty if group.episodes else None
        if rewards and difficulty in self._names:
            success = sum(reward >= self._config.success_reward for reward in rewards) / len(rewards)
            self._seen[group.birth] = Observation(group.birth, self._names.index(difficulty), success)

    def counted_before(self, load: Load[Value]) -> Load[Value]:
        """What a cell of weights is loaded by, so that a step's groups count before those that its weights admit are opened.

        Args:
            load: what the cell would be loaded by, as an engine's ``load``.
        """

        async def load_and_count(value: Value, version: int) -> None:
            self.step(version)
            await load(value, version)

        return load_and_count

    def step(self, version: int) -> None:
        """A step is complete: what was observed will count. One that was there before, as in a resume, changes nothing."""
        if version <= self._version:
            return
        self._version = version
        observed = tuple(self._seen[birth] for birth in sorted(self._seen))
        self._seen.clear()
        if observed:
            due = observed[-1].birth + 1 + self._config.ahead
            self.num_late += len(observed) if due < self._drawn else 0
            self._waiting.append((due, observed))

    def state(self) -> CurriculumState:
        """Where the next draw is, and all that was observed.

        Raises:
            TypeError: a bucket declares no state.
        """
        return CurriculumState(
            self._names, self._drawn, tuple(self._credits), tuple(self._over), tuple(self._estimates), tuple(self._waiting),
            tuple(self._seen.values()), self._version, self.num_late,
            tuple(bucket.state() for bucket in stateful(self._names, self._buckets)),
        )  # fmt: skip

    def restore(self, state: CurriculumState) -> None:
        """Go where ``state`` says.

        Raises:
            ValueError: it is of other buckets, or one of them has no such place.
        """
        restore_parts(state.names, state.parts, self._names, self._buckets, "Curriculum.restore")
        self._drawn, self._version, self.num_late = state.drawn, state.version, state.num_late
        self._credits, self._over = list(state.credits), list(state.over)
        self._estimates, self._waiting = list(state.estimates), list(state.waiting)
        self._seen = {observation.birth: observation for observation in state.seen}
        if self._told is not None:
            self.restore_observed(self._told)

    def observed(self) -> ObservedState:
        """What it was told by now. The state of a source that draws on a thread is that of its latest draw, which lacks it."""
        return ObservedState(tuple(self._waiting), tuple(self._seen.values()), self._version, self.num_late)

    def restore_observed(self, state: ObservedState) -> None:
        """Know what was told up to a moment, beside what counted for the draw that ``restore`` goes to; in either order."""
        self._told = state
        self._waiting = sorted({*self._waiting, *state.waiting}, key=lambda due: due[0])
        self._seen = {observation.birth: observation for observation in state.seen}
        self._version, self.num_late = state.version, state.num_late

    def _learn(self, observed: tuple[Observation, ...]) -> None:
        for one in observed:
            known = self._estimates[one.bucket]
            groups = min(known.groups + 1, self._config.window)
            self._estimates[one.bucket] = Estimate(groups, known.success + (one.success - known.success) / groups)

    def _parts(self) -> list[int]:
        success = [estimate.success for estimate in self._estimates]
        return shares_of(success, self._over, self._config.min_share)


def shares_of(success: list[float], over: list[bool], min_share: float) -> list[int]:
    """Share of each bucket in parts of 2^20: ``min_share``, and of the rest in proportion to p (1 - p).

    Args:
        success: p of each bucket.
        over: buckets that get none.
        min_share: least share of the others.
    """
    left = over.count(False)
    worth = [0.0 if ended else p * (1 - p) for p, ended in zip(success, over, strict=True)]
    total = sum(worth)
    rest = 1 - left * min_share
    return [
        0 if ended else round(_PARTS * (min_share + rest * (value / total if total else 1 / left)))
        for value, ended in zip(worth, over, strict=True)
    ]
