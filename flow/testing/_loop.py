"""An asyncio loop in virtual time, with a seeded order of tasks, and cancellations aimed where they hurt.

Time stands still while anything is ready and jumps to the next timer otherwise, so a graph of hours runs in milliseconds.
Steps of tasks that are ready together run in a seeded order; other callbacks keep asyncio's. A loop with nothing ready and no
timer is an error: everything waits for ever. Threads and sockets are not for this loop: they live in real time.
"""

import asyncio
import random
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop for ``asyncio.Runner``.

    Args:
        seed: decides the order of tasks and the kills.
        kill: share of the steps of tasks whose wake-up is due that are cancelled instead; tasks for which ``spare`` is true
            are left alone.
        spare: which tasks are never killed; by default every task that is not a worker of a graph.
    """

    def __init__(
        self,
        seed: int = 0,
        kill: float = 0.0,
        spare: "Callable[[asyncio.Task[Any]], bool]" = lambda task: not task.get_name().endswith(" worker"),
    ) -> None:
        self._now = 0.0
        self._random = random.Random(seed)
        self._kill, self._spare = kill, spare
        self.kills = 0
        super().__init__(_Clock(self))

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def pass_time(self, timeout: float | None) -> None:
        """Called where a real loop would sleep: jump, then decide who goes first."""
        ready: Any = getattr(self, "_ready")  # noqa: B009 - asyncio offers no public way to the queue of ready handles
        if timeout is None and not ready:
            raise RuntimeError("every task waits and no timer is set: this graph can never move again")
        if timeout:
            self._now += timeout
        places = [index for index, handle in enumerate(list[Any](ready)) if _task_of(handle) is not None]
        chosen: list[Any] = [ready[index] for index in places]
        self._random.shuffle(chosen)
        for index, handle in zip(places, chosen, strict=True):
            ready[index] = handle
        for handle in chosen:
            task = _task_of(handle)
            if task is not None and self._kill and not self._spare(task) and self._random.random() < self._kill:
                self.kills += 1
                task.cancel()


class _Clock(selectors.SelectSelector):
    """A selector that never sleeps: it lets the loop's time pass instead."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> "list[tuple[selectors.SelectorKey, int]]":
        self._loop.pass_time(timeout)
        return []


def _task_of(handle: Any) -> "asyncio.Task[Any] | None":
    owner: Any = getattr(handle._callback, "__self__", None)
    return owner if isinstance(owner, asyncio.Task) else None  # pyright: ignore[reportUnknownVariableType]


def run_virtual(main: Coroutine[Any, Any, T], *, seed: int = 0, kill: float = 0.0) -> T:
    """Run a coroutine to its end in virtual time."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(seed, kill)) as runner:
        return runner.run(main)
