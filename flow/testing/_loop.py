"""An asyncio loop in virtual time, with a seeded order of tasks, and disturbances aimed where they hurt.

Time stands still while anything is ready and jumps to the next timer otherwise, so a graph of hours runs in milliseconds.
Steps of tasks that are ready together run in a seeded order; other callbacks keep asyncio's. A loop with nothing ready and no
timer is an error: everything waits for ever. So is one whose time passes its deadline.

A step of a worker that is due may be *killed* (its task is cancelled, the sharpest moment for it: the wake-up is already on
its way), put off for a few passes of the loop (*late*, as if every park yielded once more), or put off for some time (*slow*:
between an attempt and its delivery, say). A killed worker may *leave* for good. All from one seed.

It has no sockets, pipes, signals or subprocesses: they live in real time, and asking for one is an error. Threads it plays
(``_threads.py``).
"""

import asyncio
import heapq
import random
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, NoReturn, TypeVar, TypeVarTuple, Unpack

from ._handles import Callback, Timer
from ._threads import PlayedThreads

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_LATE_PASSES = 3
"""Most passes of the loop for which a step is put off."""
_SLOW_S = 1.0
"""Most seconds for which a step is put off."""


class NothingMovesError(RuntimeError):
    """Every task waits and no timer is set."""


class VirtualLoop(asyncio.BaseEventLoop):
    """A loop for ``asyncio.Runner``.

    Args:
        seed: decides the order of tasks and every disturbance.
        kill: share of the due steps of workers that are cancelled instead.
        leave: share of the kills after which the worker is not to come back; ``leaves`` tells.
        late: share of the due steps of tasks that are put off for up to three passes of the loop.
        slow: share of the due steps of workers that are put off for up to a second.
        deadline_s: virtual seconds after which the loop raises ``TimeoutError``, since a periodic timer would keep it going.
        spare: tasks that are never killed or slowed; by default every task that is not a worker of a graph.

    Attributes:
        kills: steps cancelled so far.
        left: kills after which the worker did not come back.
        threads: what runs the work of threads.
    """

    def __init__(
        self,
        seed: int = 0,
        kill: float = 0.0,
        *,
        leave: float = 0.0,
        late: float = 0.0,
        slow: float = 0.0,
        deadline_s: float = float("inf"),
        spare: "Callable[[asyncio.Task[Any]], bool]" = lambda task: not task.get_name().endswith(" worker"),
    ) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self._kill, self._leave, self._late, self._spare = kill, leave, late, spare
        self._risk = kill + late + slow
        self._now, self._deadline_s, self._patience_s = 0.0, deadline_s, deadline_s
        self._passes = self._timers_made = self._timers_cancelled = 0
        # asyncio offers no public way to its queue of ready handles, and a loop that orders them has to see it.
        self._queue: Any = getattr(self, "_ready")  # noqa: B009
        self._stopping: bool
        self._closed: bool
        self._timers: list[tuple[float, int, Any]] = []
        self._put_off: list[tuple[int, Any]] = []
        self._leavers: set[asyncio.Task[Any]] = set()
        self.kills = self.left = 0
        self.threads = PlayedThreads(self, self._random.random)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def leaves(self, task: "asyncio.Task[Any]") -> bool:
        """Whether a killed worker is not to be started again. Asked once, when its task has ended; it is counted then."""
        if task not in self._leavers:
            return False
        self._leavers.discard(task)
        self.left += 1
        return True

    def block(self, seconds: float) -> None:
        """Let time pass as code does that blocks: on the loop for everybody, on a thread for whoever waits for its work."""
        if self.threads.blocked_s is None:
            self._now += seconds
        else:
            self.threads.blocked_s += seconds

    def run_in_executor(self, executor: Any, func: "Callable[[Unpack[Ts]], T]", *args: *Ts) -> "asyncio.Future[T]":
        """Have the played threads run a function, whatever the executor."""
        return asyncio.wrap_future(self.threads.submit(func, *args), loop=self)

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        """Call in the next pass."""
        if self._closed:
            raise RuntimeError("Event loop is closed")
        handle = Callback(callback, args, self, context)
        self._queue.append(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call at a virtual time."""
        if self._closed:
            raise RuntimeError("Event loop is closed")
        timer = Timer(when, callback, args, self, context)
        self._timers_made += 1
        heapq.heappush(self._timers, (when, self._timers_made, timer))
        return timer

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call after so many virtual seconds."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    # asyncio's own hook: a pass of the loop. Ours has no selector to ask, which is most of what a pass costs there, and makes
    # one pass after the other until the loop is to stop, which is all that asyncio would look at between two of them.
    def _run_once(self) -> None:
        queue, timers, risk, draw = self._queue, self._timers, self._risk, self._random.random
        while True:
            self._passes += 1
            if self._put_off:
                self._bring_back()
            if not (queue or self._put_off or self._stopping):
                self._jump()
            while timers and timers[0][0] <= self._now:
                timer = heapq.heappop(timers)[2]
                timer._scheduled = False
                queue.append(timer)
            if len(queue) == 1:  # as most often
                handle = queue.popleft()
                if not handle._cancelled and not (risk and draw() < risk and not self._goes(handle)):
                    self._call(handle)
            else:
                self._call_all()
            if self._stopping:
                return

    def _call_all(self) -> None:
        """Call what is ready now; what these make ready comes in the next pass."""
        queue, risk, draw, place = self._queue, self._risk, self._random.random, 0
        handles = list(queue)
        queue.clear()
        self._permute(handles)
        try:
            for place, handle in enumerate(handles):  # noqa: B007 - asked for below
                if not handle._cancelled and not (risk and draw() < risk and not self._goes(handle)):
                    self._call(handle)
        except BaseException:  # an interrupt: the rest is still to run
            queue.extendleft(reversed(handles[place + 1 :]))
            raise

    def _call(self, handle: Any) -> None:
        try:
            handle._context.run(handle._callback, *handle._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.call_exception_handler({"message": f"Exception in {handle!r}", "exception": error, "handle": handle})

    def _jump(self) -> None:
        """Go to the next timer."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not timers:
            raise NothingMovesError(
                "every task waits and no timer is set: this graph can never move again; look for a wait that nobody ends, or "
                "that a thread or a socket of the real world was to end, which this loop does not wait for"
            )
        when = timers[0][0]
        if when > self._deadline_s:
            passed, self._deadline_s = self._deadline_s, when + self._patience_s  # time to close what is open
            raise TimeoutError(
                f"expected an end within {passed:g} virtual seconds, got none; look for what runs again and again, or raise "
                "deadline_s"
            )
        self._now = max(self._now, when)

    def _bring_back(self) -> None:
        """Make the steps ready whose time to be late is over."""
        self._queue.extend(handle for due, handle in self._put_off if due <= self._passes)
        self._put_off = [(due, handle) for due, handle in self._put_off if due > self._passes]

    def _permute(self, handles: list[Any]) -> None:
        """Shuffle the steps of tasks among their places."""
        draw = self._random.random
        places = [place for place, handle in enumerate(handles) if _task_of(handle) is not None]
        for last in range(len(places) - 1, 0, -1):
            left, right = places[last], places[int(draw() * (last + 1))]
            handles[left], handles[right] = handles[right], handles[left]

    def _goes(self, handle: Any) -> bool:
        """Disturb a step that was drawn for it; whether it runs in this pass all the same. A kill is a step too."""
        task = _task_of(handle)
        if task is None:
            return True
        draw = self._random.random
        which = draw() * self._risk
        if which < self._late:
            self._put_off.append((self._passes + 1 + int(draw() * _LATE_PASSES), handle))
            return False
        if self._spare(task):
            return True
        if which >= self._late + self._kill:
            self.call_later(draw() * _SLOW_S, self._queue.append, handle)
            return False
        self.kills += 1
        task.cancel()
        if draw() < self._leave:
            self._leavers.add(task)
        return True

    def timer_cancelled(self) -> None:
        """A cancelled timer lies in the heap until its turn; many of them at once are swept out."""
        self._timers_cancelled += 1
        if self._timers_cancelled > 100 + len(self._timers) // 2:
            self._timers[:] = [entry for entry in self._timers if not entry[2]._cancelled]
            heapq.heapify(self._timers)
            self._timers_cancelled = 0

    def _write_to_self(self) -> None:
        """Waking a loop that sleeps: this one never does."""


def _task_of(handle: Any) -> "asyncio.Task[Any] | None":
    owner: Any = getattr(handle._callback, "__self__", None)
    return owner if isinstance(owner, asyncio.Task) else None  # pyright: ignore[reportUnknownVariableType]


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(self: VirtualLoop, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(
            f"expected code that lives in virtual time, got a call of {name} on a VirtualLoop, which has no sockets, pipes, "
            "signals or subprocesses; give the stage a fake of what it talks to, or test it on a real loop"
        )

    return refuse


for _name in (
    "add_reader", "add_signal_handler", "add_writer", "connect_accepted_socket", "connect_read_pipe", "connect_write_pipe",
    "create_connection", "create_datagram_endpoint", "create_server", "create_unix_connection", "create_unix_server",
    "getaddrinfo", "getnameinfo", "sendfile", "sock_accept", "sock_connect", "sock_recv", "sock_recv_into", "sock_recvfrom",
    "sock_recvfrom_into", "sock_sendall", "sock_sendfile", "sock_sendto", "start_tls", "subprocess_exec", "subprocess_shell",
):  # fmt: skip
    setattr(VirtualLoop, _name, _refusal(_name))


def run_virtual(
    main: Coroutine[Any, Any, T],
    *,
    seed: int = 0,
    kill: float = 0.0,
    late: float = 0.0,
    deadline_s: float = float("inf"),
) -> T:
    """Run a coroutine to its end in virtual time. ``VirtualLoop`` explains the arguments."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(seed, kill, late=late, deadline_s=deadline_s)) as runner:
        return runner.run(main)
