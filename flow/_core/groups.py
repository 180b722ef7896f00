"""Open groups of one repeat ... group pair: every member reports, and a group closes for exactly one reason.

A group is opened before its first member exists, so the barrier never refuses a member. A report for a group that is closed
is late: counted, never opened anew.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Literal

from .._item import Gathered
from .._policy import Failure, Missing, Retry, Shrink
from .item import Item, Wake


@dataclass(slots=True, eq=False)
class OpenGroup:
    """A group some of whose members have not reported.

    Attributes:
        origin: the item that was repeated.
        size: number of members.
        values: what members reported, by index.
        failures: why members failed for good, by index.
        failed: what stands for those of them that have a value, by index.
        versions: oldest version that goes into each member, as far as it is dispatched.
        member_retries: retries this barrier gave, by index.
        version: oldest version any member was dispatched with; ``None`` before the first dispatch. Kept, since it is looked up
            far more often than a member is dispatched.
    """

    origin: Item
    size: int
    values: dict[int, Item] = field(default_factory=dict[int, Item])
    failures: dict[int, str] = field(default_factory=dict[int, str])
    failed: dict[int, Item] = field(default_factory=dict[int, Item])
    versions: dict[int, int] = field(default_factory=dict[int, int])
    member_retries: dict[int, int] = field(default_factory=dict[int, int])
    version: int | None = None


@dataclass(frozen=True)
class Closed:
    """A group left the barrier.

    Attributes:
        birth: its number.
        item: what goes on; ``None`` where the group was dropped.
        reason: why it was dropped, empty where it was not.
        discarded: members that had succeeded and are given up with the group.
        origin: what the group was opened from, of one that was dropped.
        members: values in it.
        last: index of the member whose end closed it; ``None`` where it was given up from outside.
    """

    birth: int
    item: Item | None
    reason: str = ""
    discarded: int = 0
    origin: Item | None = None
    members: int = 0
    last: int | None = None


class Groups:
    """The groups between one ``repeat`` and its ``group``.

    Args:
        missing: policy of the barrier.
        aside: retries that a copy of a member may be granted elsewhere. A member that is issued again leaves out their numbers,
            so that no two attempts at one node have the same key.

    Attributes:
        open: open groups by birth number.
        opened: groups ever opened, which is the next birth number.
        late: members that reported after their group had closed.
        again: members that were issued again after a failure.
        retries: members to be issued again by the repeat node.
        on_retry: called when a member is to be issued again; set by the repeat node's worker.
    """

    def __init__(self, missing: Missing, aside: int = 0) -> None:
        self._missing, self._aside = missing, aside
        self.open: dict[int, OpenGroup] = {}
        self.opened = 0
        self.late = self.again = 0
        self.retries: deque[Item] = deque()
        self.on_retry: Wake | None = None

    def begin(self, origin: Item, size: int) -> list[Item]:
        """Open a group and make its members."""
        birth = self.opened
        self.opened += 1
        self.open[birth] = OpenGroup(origin, size)
        return [Item(origin.value, (*origin.path, index), birth, index, 0, origin.version) for index in range(size)]

    def dispatched(self, birth: int, member: int, version: int) -> bool:
        """An attempt at a member began; this is the oldest version that goes into it.

        Returns:
            Whether the group is younger than before, as when its oldest member is made again.
        """
        group = self.open.get(birth)
        if group is None:
            return False
        before = group.version
        group.versions[member] = version
        group.version = min(group.versions.values())
        return before is not None and group.version > before

    def report(self, item: Item, failure: Failure | None) -> Closed | None:
        """A member ended: with a value, or with a failure (or a value that is marked as one)."""
        assert item.member is not None
        group = self.open.get(item.birth)
        if group is None:
            self.late += 1
            return None
        reason = item.failed if failure is None else failure.kind
        if reason is None:
            group.values[item.member] = item
        elif self._retry(group, item):
            return None
        else:
            group.failures[item.member] = reason
            if failure is None:
                group.failed[item.member] = item
            if self._drops():
                return self._drop(item.birth, group, f"member failed: {reason}", item.member)
        return self._close_if_full(item.birth, group, item.member)

    def give_up(self, birth: int, reason: str) -> Closed | None:
        """Drop an open group from outside, as when it became too old."""
        group = self.open.get(birth)
        return None if group is None else self._drop(birth, group, reason)

    def _retry(self, group: OpenGroup, item: Item) -> bool:
        assert item.member is not None
        used = group.member_retries.get(item.member, 0)
        if not isinstance(self._missing, Retry) or used >= self._missing.times:
            return False
        group.member_retries[item.member] = used + 1
        self.again += 1
        origin = group.origin
        path = (*origin.path, item.member)  # as when it was made first: what failed may be called otherwise behind a broadcast
        retry = item.retry + self._aside + 1
        self.retries.append(Item(origin.value, path, item.birth, item.member, retry, origin.version))
        if self.on_retry is not None:
            self.on_retry()
        return True

    def _drops(self) -> bool:
        return self._missing == "drop" or (isinstance(self._missing, Retry) and self._missing.then == "drop")

    def _drop(self, birth: int, group: OpenGroup, reason: str, last: int | None = None) -> Closed:
        del self.open[birth]
        self.retries = deque(item for item in self.retries if item.birth != birth)
        return Closed(
            birth, None, reason, discarded=len(group.values), origin=group.origin, members=len(group.values), last=last
        )

    def _close_if_full(self, birth: int, group: OpenGroup, last: int) -> Closed | None:
        if len(group.values) + len(group.failures) < group.size:
            return None
        fewest = self._missing.min_members if isinstance(self._missing, Shrink) else 1
        if len(group.values) < fewest:
            return self._drop(birth, group, "too few members", last)
        del self.open[birth]
        members = tuple(group.values[index].value for index in sorted(group.values))
        failures = tuple(group.failures[index] for index in sorted(group.failures))
        failed = tuple(group.failed[index].value for index in sorted(group.failed))
        closed: Literal["full", "shrunk"] = "shrunk" if failures else "full"
        gathered: Gathered[Any] = Gathered(birth, members, failures, closed, failed)
        parts = (*group.values.values(), *group.failed.values())
        versions = [item.version for item in parts if item.version is not None]
        item = Item(gathered, group.origin.path, birth, None, 0, min(versions, default=None))
        return Closed(birth, item, members=len(members), last=last)
