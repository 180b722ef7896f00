"""The end of a run has a bound: what is cancelled may take its time, but not for ever.

First workers and threads end, then stages are closed. What does not end is named and left behind; a task that is left behind
is struck off asyncio's list, since ``asyncio.run`` would wait for it at its own end.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ._executor import Executor
from ._park import outlast
from ._stacks import place_of_task

_HURRY_S = 1.0
"""The bound once somebody asked for the end twice."""
_TELL_S = 1.0
"""When somebody who waits for the end is told why."""
_LOG = logging.getLogger("headrace")
_LAST_S = 0.1
"""What a task gets after its second cancel, and a stage after each further one."""


class Closing:
    """Bounds of the end of one run.

    Args:
        workers_s: seconds that workers and threads may take after they were cancelled.
        stages_s: seconds that closing the stages may take; ``None`` for any. Long, since a stage may save what it made.

    Attributes:
        left: what was left behind, each as ``play/3 in Env.step (swe.py:88)``.
        overdue: whether stages took too long to close.
    """

    def __init__(self, workers_s: float, stages_s: float | None) -> None:
        self._workers_s, self._stages_s = workers_s, stages_s
        self.left: list[str] = []
        self.overdue = self._hurried = False
        self._limit: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __str__(self) -> str:
        """What was left behind, in one line."""
        return "; ".join(name if count == 1 else f"{name}, {count} times" for name, count in Counter(self.left).items())

    def error(self, graph: str) -> TimeoutError:
        """What a run ends with whose stages did not close in time."""
        return TimeoutError(
            f"expected the stages of graph '{graph}' to close in time, got {self.left[-1]}; give what it waits for a bound of "
            "its own, or raise stall_s"
        )

    def hurry(self) -> None:
        """Bound what is under way, and what follows, by a second."""
        self._hurried = True
        if self._limit is not None and not self._limit.done():
            self._arm(self._limit, _HURRY_S)

    def stop(self) -> None:
        """Set no bound any more."""
        self._limit = None
        if self._timer is not None:
            self._timer.cancel()

    async def end_workers(
        self, tasks: "Mapping[asyncio.Task[None], str]", executors: Sequence[Executor]
    ) -> asyncio.CancelledError | None:
        """Cancel tasks and end threads, whatever cancels come meanwhile.

        Args:
            tasks: what to cancel, with the name each has if it is left behind.
            executors: threads to end.

        Returns:
            The last of the cancels.
        """
        for task in tasks:
            task.cancel()
        limit = self._after(self._workers_s)
        told = asyncio.get_running_loop().call_later(_TELL_S, self._tell, tasks, executors)
        cancelled = await outlast(list(tasks), limit)
        told.cancel()
        if any(not task.done() for task in tasks):
            cancelled = await self._end_late(tasks, executors) or cancelled
        cancelled = await outlast([ended for executor in executors for ended in executor.close()], limit) or cancelled
        self.stop()
        for executor in executors:
            executor.join()
            self.left.extend(f"thread of {executor.name} in {place or 'a call'}" for place in executor.places())
        return cancelled

    def _tell(self, tasks: "Mapping[asyncio.Task[None], str]", executors: Sequence[Executor]) -> None:
        """Say what the end waits for."""
        places = [
            f"a thread of {executor.name} in {place or 'a call'}" for executor in executors for place in executor.places()
        ]
        late = [task for task in tasks if not task.done()]
        places += [f"{tasks[task]} in {place}" for task in late if (place := place_of_task(task))]
        _LOG.warning(
            "the end of the run waits up to %.0f s for %s; closing_s bounds it",
            self._workers_s, ", ".join(places) or "its workers",
        )  # fmt: skip

    async def _end_late(
        self, tasks: "Mapping[asyncio.Task[None], str]", executors: Sequence[Executor]
    ) -> asyncio.CancelledError | None:
        """The bound has passed: workers are released from their threads, the others are asked once more."""
        for executor in executors:
            for call in list(executor.calls):
                executor.give_up(call)
        late = [task for task in tasks if not task.done()]
        places = {task: place_of_task(task) for task in late}
        for task in late:
            task.cancel()
        cancelled = await outlast(late, self._after(_LAST_S))
        for task in late:
            if not task.done():
                leave_behind(task)
                self.left.append(f"{tasks[task]}{' in ' if places[task] else ''}{places[task]}")
        return cancelled

    def bound_stages(self, whole: "asyncio.Task[Any]", most: int) -> "asyncio.Future[None]":
        """Cancel the task that closes the stages when it takes too long, again for each further stage.

        Args:
            whole: the task.
            most: cancels, after which it is hopeless.

        Returns:
            What is done when it is hopeless.
        """
        hopeless: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def cancel(limit: "asyncio.Future[None]") -> None:
            nonlocal most
            if whole.done() or limit is not self._limit:
                return
            if not self.overdue:
                self.left.append(f"the closing of a stage in {place_of_task(whole) or 'a call'}")
            self.overdue = True
            if most == 0:
                hopeless.set_result(None)
                return
            most -= 1
            whole.cancel()
            self._after(_LAST_S).add_done_callback(cancel)

        self._after(self._stages_s).add_done_callback(cancel)
        return hopeless

    def _after(self, seconds: float | None) -> "asyncio.Future[None]":
        """The bound of what follows: done in so many seconds, soon after ``hurry``, or never."""
        limit: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._limit = limit
        if self._hurried:
            seconds = _HURRY_S if seconds is None else min(seconds, _HURRY_S)
        if seconds is not None:
            self._arm(limit, seconds)
        return limit

    def _arm(self, limit: "asyncio.Future[None]", seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, lambda: None if limit.done() else limit.set_result(None))


def leave_behind(task: "asyncio.Task[Any]") -> None:
    """Strike a task off the list of those that ``asyncio.run`` waits for."""
    # Meant for other makers of tasks, documented for them, and the only way out: a task cannot be ended by force.
    asyncio.tasks._unregister_task(task)  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType, reportAttributeAccessIssue]
    setattr(task, "_log_destroy_pending", False)  # noqa: B010 - it is named in the summary already
