"""Spans, counters and moments in the trace, from any code that works for an attempt: a stage, a tool, a thread of either.

Who listens is a context variable, which tasks and ``asyncio.to_thread`` inherit. The worker sets it where somebody records, so
where nobody does a call finds nobody and is over. A process that works for the attempt has a listener of its own, which tells
this one: see ``elsewhere``.
"""

from collections.abc import Generator, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Protocol

from .trace._recorder import Happens, Opens


class Listener(Protocol):
    """Where they go: the row of a worker, or the way there from a process.

    What user code calls takes the time and the caller as they are. What another process told of has both handed in: what one
    *strand* shows nests, what several show may overlap. Times are of the loop.
    """

    def span(self, name: str, args: Mapping[str, Any], flows: Sequence[int] = ()) -> AbstractContextManager[None]:
        """See ``span``."""
        ...

    def count(self, name: str, value: float, unit: str) -> None:
        """See ``count``."""
        ...

    def mark(self, name: str, args: Mapping[str, Any], flows: Sequence[int] = ()) -> None:
        """See ``mark``."""
        ...

    def strand(self) -> Hashable:
        """What the caller is: the attempt itself, or a task or thread beside it."""
        ...

    def opens(self, strand: Hashable, at_s: float, opens: Opens) -> Hashable:
        """A span began. Gives what ``closes`` takes."""
        ...

    def closes(self, opened: Hashable, at_s: float) -> None:
        """A span ended; of its strand, the one that was opened last."""
        ...

    def happens(self, strand: Hashable, at_s: float, happens: Happens) -> None:
        """A moment."""
        ...

    def leaves_out(self, strand: Hashable, at_s: float, count: int) -> None:
        """So many spans, moments and values were left out of the attempt, which showed too many."""
        ...

    def stands(self, at_s: float, name: str, value: float, unit: str) -> None:
        """A counter has another value."""
        ...


class _Unseen:
    """A span of which nobody hears."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass


UNSEEN = _Unseen()
_LISTENER: ContextVar[Listener | None] = ContextVar("flow listener", default=None)


def listen(to: Listener | None) -> None:
    """From now on what the running task opens, and those that it starts, goes here."""
    _LISTENER.set(to)


@contextmanager
def listening(here: Listener) -> Generator[None]:
    """The same for a block."""
    token = _LISTENER.set(here)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def listener() -> Listener | None:
    """Where what the caller opens goes; ``None`` where nobody records."""
    return _LISTENER.get()


def span(name: str, /, *, flows: Sequence[int] = (), **args: Any) -> AbstractContextManager[None]:
    """A slice in the trace, inside that of the attempt which the caller works for; free where nobody records.

    Args:
        name: one of few: what differs goes into ``args``.
        flows: numbers from 0 to 2**64 - 1: the viewer draws an arrow through all that carry the same one.
        args: text, numbers, booleans; anything else is written as text. Kept: do not change them afterwards.

    Example:
        ``with flow.span("search", engine="local"): ...``
    """
    heard = _LISTENER.get()
    return UNSEEN if heard is None else heard.span(name, args, flows)


def count(name: str, value: float, unit: str = "") -> None:
    """A counter in the trace has this value from now on. It is shown under the node that the caller works for.

    Args:
        name: of the counter; the same name is the same counter for all workers of the node.
        value: what it stands at; NaN is written for what is no number.
        unit: what it counts.
    """
    heard = _LISTENER.get()
    if heard is not None:
        heard.count(name, value, unit)


def mark(name: str, /, *, flows: Sequence[int] = (), **args: Any) -> None:
    """A moment in the trace, on the row of the worker that the caller works for. Arguments as of ``span``."""
    heard = _LISTENER.get()
    if heard is not None:
        heard.mark(name, args, flows)
