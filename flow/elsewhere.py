"""What a process shows that works for an attempt: its spans, moments and counters, on their way into the one trace.

``Teller`` is what ``flow.span`` and its kin lead to in the process; ``Hearer`` puts what it tells into the trace, where the
call was made that the process works on. How that travels is for those who start the process: both take it one by one, so a
process that dies leaves what it had sent. Public, as whoever starts processes of its own needs it too.

Times are of ``time.monotonic``, which is one clock for all processes of a machine: so Python has it on Linux, on Windows and,
since 3.10, on macOS. A process that was moved to another clock, as by a time namespace of Linux, cannot break the trace: what
it tells of is put within its call.
"""

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

from ._lane import clock_of
from ._processes.messages import Closed, Happened, LeftOut, Opened, Shown, Stands
from ._processes.shown import plain_args, plain_flows, plain_number, plain_text
from ._spans import UNSEEN, Listener, listener, listening
from .trace._recorder import Happens, Opens

MOST_SHOWN = 4096
"""Spans, moments and values of counters that one attempt may show from a process. More costs the attempt more than it tells."""
_NUMBERS = itertools.count()


class Teller:
    """Tells of what this process shows in a call, from any thread. A ``Listener``; silent between calls.

    Args:
        say: sends to the process in which the call was made.
        is_own: whether the calling thread, which runs no loop, does the work of the call while its task waits. What other
            threads show may overlap, so it has a track of its own.
    """

    def __init__(self, say: Callable[[Shown], None], is_own: Callable[[], bool] = lambda: False) -> None:
        self._say, self._is_own = say, is_own
        self._call: int | None = None
        self._owner: asyncio.Task[Any] | None = None
        self._lock = threading.Lock()
        self._room, self._left_out = MOST_SHOWN, 0

    @contextmanager
    def telling(self, call: int | None, *, anew: bool = True) -> Generator[None]:
        """Tell of what the running task shows in this block, and the tasks that it starts.

        Args:
            call: number of the call, as its ``Hearer`` has it; ``None`` where nobody hears.
            anew: whether an attempt begins with it, which may show ``MOST_SHOWN``; else the one before goes on.
        """
        if call is None:
            yield
            return
        if anew:
            self._room = MOST_SHOWN
        self._call, self._owner = call, asyncio.current_task()
        with listening(self):
            try:
                yield
            finally:
                self._end(call)

    def _end(self, call: int) -> None:
        with self._lock:
            self._call, left_out, self._left_out = None, self._left_out, 0
        if left_out:
            self._say(LeftOut(call, left_out, time.monotonic()))

    # --- as a ``Listener`` ---

    def span(self, name: str, args: Mapping[str, Any], flows: Sequence[int] = ()) -> AbstractContextManager[None]:
        """See ``flow.span``."""
        return UNSEEN if self._call is None else self._span(Opens(name, args, flows))

    def mark(self, name: str, args: Mapping[str, Any], flows: Sequence[int] = ()) -> None:
        """See ``flow.mark``."""
        self.happens(self.strand(), time.monotonic(), Happens(name, args, flows))

    def count(self, name: str, value: float, unit: str) -> None:
        """See ``flow.count``."""
        self.stands(time.monotonic(), name, value, unit)

    def spent(self, name: str, began_s: float, ended_s: float, args: Mapping[str, Any]) -> None:
        """Show a span that is over. Times of ``time.monotonic``."""
        self.closes(self.opens(self.strand(), began_s, Opens(name, args)), ended_s)

    def strand(self) -> str:
        """Nothing for the attempt itself; else the number of the task or thread beside it."""
        try:
            task = asyncio.current_task()
        except RuntimeError:
            return "" if self._is_own() else str(threading.get_ident())
        return "" if task is None or task is self._owner else str(id(task))

    def opens(self, strand: Hashable, at_s: float, opens: Opens) -> Hashable:
        """See ``Listener.opens``."""
        call = self._admitted()
        if call is None:
            return None
        span, args = next(_NUMBERS), plain_args(opens.args or {})
        self._say(Opened(call, span, str(strand), plain_text(opens.name), args, plain_flows(opens.flows), at_s))
        return call, span

    def closes(self, opened: Hashable, at_s: float) -> None:
        """See ``Listener.closes``."""
        if opened is not None:
            call, span = cast("tuple[int, int]", opened)
            if call == self._call:
                self._say(Closed(call, span, at_s))

    def happens(self, strand: Hashable, at_s: float, happens: Happens) -> None:
        """See ``Listener.happens``."""
        call = self._admitted()
        if call is not None:
            args, flows = plain_args(happens.args or {}), plain_flows(happens.flows)
            self._say(Happened(call, str(strand), plain_text(happens.name), args, flows, at_s))

    def stands(self, at_s: float, name: str, value: float, unit: str) -> None:
        """See ``Listener.stands``."""
        call = self._admitted()
        if call is not None:
            self._say(Stands(call, plain_text(name), plain_number(value), plain_text(unit), at_s))

    def leaves_out(self, strand: Hashable, at_s: float, count: int) -> None:
        """See ``Listener.leaves_out``."""
        with self._lock:
            self._left_out += count

    @contextmanager
    def _span(self, opens: Opens) -> Generator[None]:
        opened = self.opens(self.strand(), time.monotonic(), opens)
        try:
            yield
        finally:
            self.closes(opened, time.monotonic())

    def _admitted(self) -> int | None:
        """The call, where there is one and its attempt may show more."""
        with self._lock:
            if self._call is None:
                return None
            if not self._room:
                self._left_out += 1
                return None
            self._room -= 1
            return self._call


class Hearer:
    """Hears what a process shows in one call. Made by the task that makes the call, and used on its loop.

    Args:
        call: number of the call in that process.

    Attributes:
        call: as given; ``None`` where nobody records, so that nothing need be told.
    """

    def __init__(self, call: int) -> None:
        heard = listener()
        self.call = None if heard is None else call
        if heard is not None:
            self._listener: Listener = heard
            self._strand, self._number = heard.strand(), next(_NUMBERS)
            self._clock = clock_of(asyncio.get_running_loop())
            self._began_s = self._clock()
            self._open: dict[int, Hashable] = {}

    def hear(self, shown: Shown) -> None:
        """Take what the process tells. What it tells of another call, or of this one after its end, is dropped.

        Raises:
            Exception: whoever records raised it.
        """
        if shown.call != self.call:
            return
        at_s = self._at(shown.at_s)
        if isinstance(shown, Opened):
            opens = Opens(shown.name, shown.args or None, shown.flows)
            self._open[shown.span] = self._listener.opens(self._of(shown.strand), at_s, opens)
        elif isinstance(shown, Happened):
            self._listener.happens(self._of(shown.strand), at_s, Happens(shown.name, shown.args or None, shown.flows))
        elif isinstance(shown, Stands):
            self._listener.stands(at_s, shown.name, shown.value, shown.unit)
        elif isinstance(shown, LeftOut):
            self._listener.leaves_out(self._strand, at_s, shown.count)
        elif shown.span in self._open:
            self._listener.closes(self._open.pop(shown.span), at_s)

    def end(self) -> None:
        """The call is over, however it ended, and with it the spans that are open."""
        if self.call is not None:
            for span in reversed(list(self._open)):
                self._listener.closes(self._open.pop(span), self._clock())
            self.call = None

    def _of(self, strand: str) -> Hashable:
        return f"{self._number}/{strand}" if strand else self._strand

    def _at(self, at_s: float) -> float:
        now_s = self._clock()
        if self._clock is not time.monotonic:  # a loop in virtual time
            at_s += now_s - time.monotonic()
        return min(max(at_s, self._began_s), now_s)
