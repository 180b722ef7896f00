"""The one owner of staleness: how many groups may be open (tickets), and which finished group a step may take (selector).

Tickets. With ``B`` groups a step and a depth of ``D`` there are ``(D + 1) * B`` tickets; the depth is ``max_lag`` unless it is
given. A group takes one when it is opened and returns it once: when it is dropped, or when it was trained and the weights of
that step are in force.

Selector. Tickets bound how much is in flight, not how old it gets: a slow group may be overtaken by others again and again.
A step may take a finished group only if afterwards, for every later step ``d``, the groups that must be trained by ``d``
still fit into the places left up to ``d``. Otherwise it waits for one that must go now.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from .._limits import Freshness
from .item import Wake


def tickets_of(freshness: Freshness, per_step: int) -> int:
    """Number of tickets."""
    depth = freshness.max_lag if freshness.depth is None else freshness.depth
    return (depth + 1) * per_step


@dataclass(frozen=True)
class Tickets:
    """Moment of an admission.

    Attributes:
        step: steps completed.
        in_force: newest version that readers have.
        holding: version of the value by birth, of groups that hold a ticket; ``None`` while members run.
        trained: step that trained it by birth, of groups whose step is not in force.
        num_trained: groups ever trained.
        dropped: tickets returned by drops.
    """

    step: int
    in_force: int
    holding: dict[int, int | None]
    trained: dict[int, int]
    num_trained: int
    dropped: int


class Admission:
    """Tickets and selection for one feedback edge.

    Attributes:
        capacity: number of tickets.
        cell: name of the cell whose versions count.
        step: steps completed, which is the newest version trained.
        in_force: newest version that readers have.
        dropped: tickets returned by drops.
        listeners: called when a ticket came back, or a group changed that a choice waits for; the workers of the repeat and of
            the sink.
    """

    def __init__(
        self,
        freshness: Freshness,
        per_step: int,
        steps: int | None,
        version_of: Callable[[int], int | None],
        cell: str = "",
    ) -> None:
        self.freshness, self.per_step, self.cell = freshness, per_step, cell
        self.capacity = tickets_of(freshness, per_step)
        self.step = self.in_force = self.dropped = 0
        self.listeners: list[Wake] = []
        self._target = None if steps is None else steps * per_step
        self._version_of = version_of
        self._holding: dict[int, int | None] = {}  # birth -> version of its value, None while members run
        self._trained: dict[int, int] = {}  # birth -> step that trained it, until that step's weights are in force
        self._num_trained = 0
        self._taken = 0

    @property
    def held(self) -> int:
        """Tickets out."""
        return len(self._holding) + len(self._trained)

    @property
    def complete(self) -> bool:
        """Whether every group the run still needs is open already."""
        return self._target is not None and self._num_trained + self._taken + len(self._holding) >= self._target

    @property
    def may_open(self) -> bool:
        """Whether a group may be opened now."""
        return self.held + self._taken < self.capacity and not self.complete

    def opened(self, birth: int) -> None:
        """A group took a ticket."""
        self._holding[birth] = None

    def gathered(self, birth: int, version: int | None) -> None:
        """A group left its barrier; its version is now that of its value."""
        self._holding[birth] = version

    def drop(self, birth: int) -> None:
        """A group is given up; its ticket comes back."""
        if self._holding.pop(birth, -1) != -1:
            self.dropped += 1
            self._notify()

    def lag(self, version: int | None) -> int | None:
        """Versions between the dispatch of an item and the step under way."""
        return None if version is None else self.step - version

    def too_old(self, version: int | None) -> bool:
        """Whether an item of this version may not be consumed by the step under way."""
        return version is not None and self.step - version > self.freshness.max_lag

    def choose(self, ready: Sequence[tuple[int, int | None]]) -> int | None:
        """Pick which ready group the step under way takes next.

        Args:
            ready: (birth, version) of the finished groups.

        Returns:
            Index into ``ready``, or ``None`` to wait.
        """
        if not ready:
            return None
        if self.freshness.max_lag == 0:
            return self._in_birth_order(ready)
        if self.freshness.late == "drop":
            return self._oldest(ready, range(len(ready)))
        margins = {birth: self._margin(birth, version) for birth, version in self._holding.items()}
        latest = self._latest_margin(margins.values())
        return self._oldest(ready, [i for i, (birth, _) in enumerate(ready) if margins[birth] <= latest])

    def holds(self, birth: int) -> bool:
        """Whether a group is on its way to a step."""
        return birth in self._holding

    def bears(self, birth: int, version: int | None) -> bool:
        """Whether a group may become as old as this version, so that it and all others can still be trained in time."""
        margins = {other: self._margin(other, known) for other, known in self._holding.items()}
        if self.too_old(version) or birth not in margins:
            return False
        margins[birth] = min(margins[birth], self._margin(birth, version))
        due = [0] * (self.freshness.max_lag + 1)
        for margin in margins.values():
            due[margin] += 1
        places = self.per_step - self._taken
        return all(needed <= places + later * self.per_step for later, needed in enumerate(accumulate(due)))

    def take(self, birth: int) -> None:
        """The step under way takes a group. Its ticket stays out."""
        del self._holding[birth]
        self._taken += 1

    def give_back(self, birth: int, version: int | None) -> None:
        """The step was given up; the group waits again."""
        self._holding[birth] = version
        self._taken -= 1

    def trained(self, births: Sequence[int]) -> None:
        """The step is complete."""
        self.step += 1
        self._taken = 0
        self._num_trained += len(births)
        self._trained.update(dict.fromkeys(births, self.step))

    def enforce(self, version: int) -> None:
        """Weights of this version are in force: the tickets of the steps up to it come back."""
        self.in_force = version
        self._trained = {birth: step for birth, step in self._trained.items() if step > version}
        self._notify()

    def _in_birth_order(self, ready: Sequence[tuple[int, int | None]]) -> int | None:
        # With no lag the groups of a step are known when they are opened: every open one. Taking them in birth order makes
        # the sum of their gradients independent of arrival.
        first = min(self._holding)
        return next((i for i, (birth, _) in enumerate(ready) if birth == first), None)

    def _version(self, version: int | None) -> int:
        return self.in_force if version is None else version

    def _oldest(self, ready: Sequence[tuple[int, int | None]], among: Iterable[int]) -> int | None:
        return min(among, key=lambda i: (self._version(ready[i][1]), ready[i][0]), default=None)

    def _margin(self, birth: int, version: int | None) -> int:
        """How many steps later than the one under way a group may still go."""
        known = version if version is not None else self._version_of(birth)
        margin = self._version(known) + self.freshness.max_lag - self.step
        return max(0, min(margin, self.freshness.max_lag))

    def _latest_margin(self, margins: Iterable[int]) -> int:
        """Largest margin a group may have to go next without shutting out another; -1 if none may.

        One count of the groups by margin answers it for every candidate: taking a group frees one of the places needed up to
        its margin and later, so the first place that is one short bounds the margin, and one that is two short forbids all.
        """
        due = [0] * (self.freshness.max_lag + 1)
        for margin in margins:
            due[margin] += 1
        needed, free, latest = 0, self.per_step - self._taken - 1, self.freshness.max_lag
        for later, count in enumerate(due):
            needed += count
            short = needed - (free + later * self.per_step)
            if short > 1:
                return -1
            if short == 1:
                latest = min(latest, later)
        return latest

    def changed(self) -> None:
        """An open group became younger, so that another may go before it."""
        self._notify()

    def moment(self, given_back: Mapping[int, int | None]) -> "Tickets":
        """What a snapshot needs. ``given_back``: the groups of the step under way, which it has not taken then."""
        return Tickets(
            self.step, self.in_force, {**self._holding, **given_back}, dict(self._trained), self._num_trained, self.dropped
        )

    def resume(self, moment: "Tickets") -> None:
        """Go on from a snapshot."""
        self.step, self.in_force, self.dropped = moment.step, moment.in_force, moment.dropped
        self._holding, self._trained = dict(moment.holding), dict(moment.trained)
        self._num_trained = moment.num_trained

    def _notify(self) -> None:
        for wake in self.listeners:
            wake()
