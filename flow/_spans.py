"""Spans, counters and moments in the trace, from any code that works for an attempt: a stage, a tool, a thread of either.

Who listens is a context variable, which tasks and ``asyncio.to_thread`` inherit. The worker sets it where somebody records, so
where nobody does a call finds nobody and is over.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Protocol


class Listener(Protocol):
    """Where they go: the row of a worker, or the way there from a process."""

    def span(self, name: str, args: Mapping[str, Any], flows: Sequence[int] = ()) -> AbstractContextManager[None]:
        """See ``span``."""
        ...

    def count(self, name: str, value: float, unit: str) -> None:
        """See ``count``."""
        ...

    def mark(self, name: str, args: Mapping[str, Any], flows: Sequence[int] = ()) -> None:
        """See ``mark``."""
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


def listen(listener: Listener | None) -> None:
    """From now on what the running task opens, and those that it starts, goes here."""
    _LISTENER.set(listener)


def span(name: str, /, *, flows: Sequence[int] = (), **args: Any) -> AbstractContextManager[None]:
    """A slice in the trace, inside that of the attempt which the caller works for; free where nobody records.

    Args:
        name: one of few: what differs goes into ``args``.
        flows: numbers from 0 to 2**64 - 1: the viewer draws an arrow through all that carry the same one.
        args: text, numbers, booleans; anything else is written as text. Kept: do not change them afterwards.

    Example:
        ``with flow.span("search", engine="local"): ...``
    """
    listener = _LISTENER.get()
    return UNSEEN if listener is None else listener.span(name, args, flows)


def count(name: str, value: float, unit: str = "") -> None:
    """A counter in the trace has this value from now on. It is shown under the node that the caller works for.

    Args:
        name: of the counter; the same name is the same counter for all workers of the node.
        value: what it stands at; NaN is written for what is no number.
        unit: what it counts.
    """
    listener = _LISTENER.get()
    if listener is not None:
        listener.count(name, value, unit)


def mark(name: str, /, *, flows: Sequence[int] = (), **args: Any) -> None:
    """A moment in the trace, on the row of the worker that the caller works for. Arguments as of ``span``."""
    listener = _LISTENER.get()
    if listener is not None:
        listener.mark(name, args, flows)
