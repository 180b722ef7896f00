"""What a stage sees of the run while it handles one item. Made by the engine, or by ``flow.testing.context``."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Versioned(Generic[T]):
    """A value of a cell and its version."""

    value: T
    version: int


@dataclass(frozen=True)
class Context:
    """One attempt at one item.

    Attributes:
        node: name of the node that handles the item.
        path: identity of the item: the source's counter, then the member index or output index at each fan-out. The same
            in every run of the same graph over the same source.
        birth: birth number of the item's group, or of the item where there are no groups. Starts at 0.
        member: index in the group, 0 where there are no groups.
        retry: recorded failures of this item before. Enters random keys: a retry must be able to differ.
        attempt: executions of this retry before, after a cancel or a crash. Never enters a key: it must reproduce.
        version: version of the cell the node reads when the item was dispatched, ``None`` where it reads none.
        lags: for a sink, the versions between dispatch and now of the item; ``None`` where it carries no version.
        deadline_s: loop time at which the attempt is cancelled, ``None`` for no deadline.
    """

    node: str
    path: tuple[int, ...]
    birth: int
    member: int
    retry: int
    attempt: int
    version: int | None
    lag: int | None
    deadline_s: float | None
    _read: Callable[[], Versioned[Any]] = field(repr=False)
    _permit: Callable[[str, int], AbstractAsyncContextManager[None]] = field(repr=False)
    _span: Callable[[str, Mapping[str, Any]], AbstractContextManager[None]] = field(repr=False)
    _report: Callable[[Mapping[str, Any]], None] = field(repr=False)

    @property
    def key(self) -> tuple[str, tuple[int, ...], int, int]:
        """Idempotency key for effects outside: (node, path, retry, attempt)."""
        return (self.node, self.path, self.retry, self.attempt)

    def read(self) -> Versioned[Any]:
        """Newest value of the cell this node reads (``reads=`` in the graph).

        Raises:
            LookupError: the node declares no cell.
        """
        return self._read()

    def permit(self, pool: str, units: int = 1) -> AbstractAsyncContextManager[None]:
        """Hold units of a pool for a part of the work: ``async with context.permit("sandbox"): ...``.

        The wait shows as pool wait. Take one pool at a time, and await nothing inside that needs another.
        """
        return self._permit(pool, units)

    def span(self, name: str, **args: Any) -> AbstractContextManager[None]:
        """A slice in the trace, inside the slice of this attempt. Free when nobody listens."""
        return self._span(name, args)

    def report(self, row: Mapping[str, Any]) -> None:
        """Hand one row of metrics to whoever watches the run. Values: numbers, strings, or None for not measured."""
        self._report(row)
