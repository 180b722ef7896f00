"""What user code shows inside the work of one worker: spans, moments and counters, whoever calls.

The worker's own lie on its row, in the order of its marks. A task that the stage started, or a thread beside the worker's, is a
*strand* of its own: what it shows overlaps with the rest, and slices of one track must nest, so it gets a track for as long as
it has a span open.
"""

import asyncio
import threading
from asyncio import current_task
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from threading import get_ident
from types import TracebackType
from typing import Any, Literal, TypeAlias, cast

from ._spans import UNSEEN
from .trace import Recorder
from .trace._recorder import CLOSES, Closes, Happens, Opens

Inner: TypeAlias = Opens | Happens | Literal[Closes.CLOSES]


class Inside:
    """Shows what happens inside the work of a lane. A ``Listener``.

    Args:
        name: of the lane.
        parent: track of its node.
        recorder: where it goes; ``None`` for nowhere.
        clock: gives the loop's time.
        row: marks of the lane's own row, as for ``Recorder.series``.
        handing: held by who takes them away.

    Attributes:
        clock: as given.
        row: where marks go now: in a stretch of quick items, a list for the item in hand.
        task: the worker's task.
        loop: its loop.
        home: number of the loop's thread.
        attempt: number of the attempt under way: a span of an earlier one is over, whenever it is closed.
    """

    def __init__(
        self,
        name: str,
        parent: int | None,
        recorder: Recorder | None,
        clock: Callable[[], float],
        row: list[Any],
        handing: threading.Lock,
    ) -> None:
        self._name, self._parent, self._recorder, self.clock, self.row, self._handing = (
            name,
            parent,
            recorder,
            clock,
            row,
            handing,
        )
        self.task: asyncio.Task[Any] | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.home = 0
        self._thread = 0  # number of that which does the worker's work now; 0 for none
        self._held: dict[Hashable, list[int]] = {}  # by strand: its track, and the spans open there
        self._free: list[int] = []
        self._taking = threading.Lock()
        self.attempt = 0

    def own(self) -> None:
        """The calling task is the worker from now on."""
        self.task, self.loop, self.home = current_task(), asyncio.get_running_loop(), get_ident()

    def on_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call on a thread that does the worker's work meanwhile."""
        self._thread = here = get_ident()
        try:
            return function(*arguments)
        finally:
            if self._thread == here:  # else it was given up, and another works for the lane by now
                self._thread = 0

    # --- as a ``Listener`` ---

    def span(self, name: str, args: Mapping[str, Any], flows: Sequence[int] = ()) -> AbstractContextManager[None]:
        """See ``flow.span``."""
        return UNSEEN if self._recorder is None else _Span(name, args, flows, self)

    def mark(self, name: str, args: Mapping[str, Any], flows: Sequence[int] = ()) -> None:
        """See ``flow.mark``."""
        if self._recorder is not None:
            self.happens(self.strand(), self.clock(), Happens(name, args or None, flows))

    def count(self, name: str, value: float, unit: str) -> None:
        """See ``flow.count``."""
        self.stands(self.clock(), name, value, unit)

    def spent(self, name: str, began_s: float, ended_s: float, args: Mapping[str, Any]) -> None:
        """Show a span that is over; none was begun or ended on its strand since it began."""
        if self._recorder is not None:
            strand = self.strand()
            self._opens(strand, began_s, Opens(name, args or None))
            self._closes(strand, ended_s)

    # --- by strand ---

    def strand(self) -> Hashable:
        """What the caller is: the worker's task, which also stands for its thread, another task, or another thread."""
        thread = get_ident()
        if thread != self.home:
            return self.task if thread == self._thread else thread
        task = current_task(self.loop)
        return self.task if task is None else task  # on the loop and in no task: a step of the worker, see ``Pump``

    def is_worker(self) -> bool:
        """Whether the caller is the worker itself."""
        return self.strand() is self.task

    def opens(self, strand: Hashable, at_s: float, opens: Opens) -> tuple[Hashable, int]:
        """See ``Listener.opens``."""
        self._opens(strand, at_s, opens)
        return strand, self.attempt

    def closes(self, opened: Hashable, at_s: float) -> None:
        """End the span opened last on a strand, unless it ended with the attempt it was in."""
        strand, attempt = cast("tuple[Hashable, int]", opened)
        if strand is not self.task or attempt == self.attempt:
            self._closes(strand, at_s)

    def _note(self, at_s: float, what: Inner) -> None:
        """Put something on the worker's own row. It may do its work on a thread, while the loop hands over."""
        with self._handing:
            self.row += (at_s, what)

    def _opens(self, strand: Hashable, at_s: float, opens: Opens) -> None:
        if strand is self.task:
            self._note(at_s, opens)
        elif self._recorder is not None:
            self._recorder.begin(self._take(strand), opens.name, int(at_s * 1e9), opens.args, opens.flows)

    def _closes(self, strand: Hashable, at_s: float) -> None:
        if strand is self.task:
            self._note(at_s, CLOSES)
        elif self._recorder is not None:
            self._recorder.end(self._held[strand][0], int(at_s * 1e9))
            self._give(strand)

    def happens(self, strand: Hashable, at_s: float, happens: Happens) -> None:
        """See ``Listener.happens``."""
        if strand is self.task:
            self._note(at_s, happens)
        elif self._recorder is not None:
            self._recorder.instant(self._take(strand), happens.name, int(at_s * 1e9), happens.args, happens.flows)
            self._give(strand)

    def leaves_out(self, strand: Hashable, at_s: float, count: int) -> None:
        """See ``Listener.leaves_out``."""
        self.happens(strand, at_s, Happens("left out", {"count": count}))

    def stands(self, at_s: float, name: str, value: float, unit: str) -> None:
        """See ``Listener.stands``."""
        if self._recorder is not None:
            self._recorder.count(self._recorder.counter(name, unit, self._parent), value, int(at_s * 1e9))

    def _take(self, strand: Hashable) -> int:
        """The track of a strand beside the worker. Tracks are used again."""
        assert self._recorder is not None
        with self._taking:
            held = self._held.get(strand)
            if held is None:
                name = f"{self._name} +{len(self._held)}"
                held = self._held[strand] = [self._free.pop() if self._free else self._recorder.track(name, self._parent), 0]
            held[1] += 1
            return held[0]

    def _give(self, strand: Hashable) -> None:
        with self._taking:
            held = self._held[strand]
            held[1] -= 1
            if not held[1]:
                del self._held[strand]
                self._free.append(held[0])


class _Span(Opens, eq=False):
    """A span, which is also its own mark: it is to cost less than a microsecond, so it is one object and few calls."""

    inside: Inside = cast("Inside", None)
    opened: tuple[Hashable, int] | None = None
    """Of a strand beside the worker's row."""
    attempt: int = 0

    def __enter__(self) -> None:
        inside = self.inside
        self.attempt = inside.attempt
        if get_ident() == inside.home and current_task(inside.loop) is inside.task:
            row = inside.row
            row += (inside.clock(), self)
        else:
            self.opened = inside.opens(inside.strand(), inside.clock(), self)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        inside = self.inside
        if self.opened is not None:
            inside.closes(self.opened, inside.clock())
        elif self.attempt == inside.attempt:  # else it ended with the attempt it was in
            row = inside.row
            row += (inside.clock(), CLOSES)
