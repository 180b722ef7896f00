"""What a stage sees of the run while it handles one item. Made by the engine, or by ``flow.testing.context``."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from ._core.item import Item

T = TypeVar("T")


@dataclass(frozen=True)
class Versioned(Generic[T]):
    """A value of a cell and its version."""

    value: T
    version: int


@dataclass(frozen=True)
class Desk:
    """What all contexts of one worker share: the name of its node, and the ways back into the run."""

    node: str
    read: Callable[[], Versioned[Any]]
    permit: Callable[[Mapping[str, int]], AbstractAsyncContextManager[None]]
    span: Callable[[str, Mapping[str, Any], Sequence[int]], AbstractContextManager[None]]
    report: Callable[[Mapping[str, Any]], None]
    spent: Callable[[str, float, float, Mapping[str, Any]], None] = lambda name, began_s, ended_s, args: None
    """Where spans go that are over."""


class Context(msgspec.Struct, eq=False):
    """One attempt at one item.

    Attributes:
        attempt: executions of this retry before, after a cancel or a crash. Never enters a key: it must reproduce.
        version: version of the cell the node reads when the item was dispatched, ``None`` where it reads none.
        lag: for a sink, the versions between dispatch and now of the item; ``None`` where it carries no version.
        deadline_s: loop time at which the attempt is cancelled, ``None`` for no deadline.
    """

    # A struct of C that holds references and computes on demand, since one is made for every attempt.
    _desk: Desk
    _item: Item
    attempt: int = 0
    version: int | None = None
    lag: int | None = None
    deadline_s: float | None = None

    def __repr__(self) -> str:
        return f"<context of {self.node} at item {'.'.join(map(str, self.path))}>"

    @property
    def node(self) -> str:
        """Name of the node that handles the item."""
        return self._desk.node

    @property
    def path(self) -> tuple[int, ...]:
        """Identity of the item: the source's counter, then the member index or output index at each fan-out.

        The same in every run of the same graph over the same source.
        """
        return self._item.path

    @property
    def birth(self) -> int:
        """Birth number of the item's group, or of the item where there are no groups. Starts at 0."""
        return self._item.birth

    @property
    def member(self) -> int:
        """Index in the group, 0 where there are no groups."""
        return self._item.member or 0

    @property
    def retry(self) -> int:
        """Recorded failures of this item before. Enters random keys: a retry must be able to differ."""
        return self._item.retry

    @property
    def key(self) -> tuple[str, tuple[int, ...], int]:
        """Idempotency key for effects outside: (node, path, retry). The same when an attempt is repeated after a cancel."""
        return (self.node, self.path, self.retry)

    def read(self) -> Versioned[Any]:
        """Newest value of the cell this node reads (``reads=`` in the graph).

        Raises:
            LookupError: the node declares no cell.
        """
        return self._desk.read()

    def permit(self, pool: str | Mapping[str, int], units: int = 1) -> AbstractAsyncContextManager[None]:
        """Hold units of a pool for a part of the work: ``async with context.permit("sandbox"): ...``.

        The wait shows as pool wait. Await nothing inside that needs another pool: what needs several asks for all at once.

        Args:
            pool: name of a pool, or of a rate, whose start is drawn and not given back; or units by name, granted all at once.
            units: how many, where ``pool`` is a name.

        Raises:
            LookupError: on entry; the graph has no such pool, or fewer units in all.
        """
        return self._desk.permit({pool: units} if isinstance(pool, str) else pool)

    def span(self, name: str, /, *, flows: Sequence[int] = (), **args: Any) -> AbstractContextManager[None]:
        """A slice in the trace, inside that of this attempt, as ``flow.span`` opens. Free when nobody listens."""
        return self._desk.span(name, args, flows)

    def spent(self, name: str, began_s: float, ended_s: float, **args: Any) -> None:
        """A slice of something that is over, as what a server told of a request, inside the slice that is open now.

        Args:
            name: as for ``span``.
            began_s: loop time; nothing else was recorded of this attempt since then, or of the task that calls.
            ended_s: loop time, not after now.
            args: details.
        """
        self._desk.spent(name, began_s, ended_s, args)

    def report(self, row: Mapping[str, Any]) -> None:
        """Hand one row of metrics to whoever watches the run. Values: numbers, strings, or None for not measured."""
        self._desk.report(row)
