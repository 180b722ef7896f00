"""Deadlines of attempts: one timer for all of a run, and a dictionary operation to set or clear one.

A timeout object per item costs several times a hand-over. All deadlines of one length expire in the order they were set, so
each length has a queue, and the timer looks only at the heads of the queues.
"""

import asyncio


class Timer:
    """The one timer of a run."""

    def __init__(self) -> None:
        self._queues: dict[float, Deadlines] = {}
        self._handle: asyncio.TimerHandle | None = None

    def deadlines(self, deadline_s: float | None) -> "Deadlines":
        """The deadlines of one length; nodes of the same length share them."""
        if deadline_s is None:
            return Deadlines(None, self)
        return self._queues.setdefault(deadline_s, Deadlines(deadline_s, self))

    def arm(self, when: float) -> None:
        """Look at the queues at this loop time, or earlier."""
        if self._handle is not None:
            if self._handle.when() <= when:
                return
            self._handle.cancel()
        self._handle = asyncio.get_running_loop().call_at(when, self._expire)

    def close(self) -> None:
        """Stop. Harmless the second time."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _expire(self) -> None:
        self._handle = None
        now = asyncio.get_running_loop().time()
        heads = [head for queue in self._queues.values() if (head := queue.expire(now)) is not None]
        if heads:
            self.arm(min(heads))


class Deadlines:
    """Deadlines of one length. Made by ``Timer.deadlines``."""

    def __init__(self, deadline_s: float | None, timer: Timer) -> None:
        self.deadline_s = deadline_s
        self._timer = timer
        self._armed: dict[asyncio.Task[object], float] = {}
        self._expired: set[asyncio.Task[object]] = set()

    def __len__(self) -> int:
        return len(self._armed)

    def __contains__(self, task: object) -> bool:
        return task in self._armed

    def set(self, task: "asyncio.Task[object]") -> float | None:
        """Cancel this task when the deadline passes.

        Returns:
            Loop time of the deadline, ``None`` without one.
        """
        if self.deadline_s is None:
            return None
        when = asyncio.get_running_loop().time() + self.deadline_s
        self._armed[task] = when
        if len(self._armed) == 1:
            self._timer.arm(when)
        return when

    def clear(self, task: "asyncio.Task[object]") -> bool:
        """The attempt is over.

        Returns:
            Whether it was cancelled for its deadline.
        """
        self._armed.pop(task, None)
        if task in self._expired:
            self._expired.discard(task)
            return True
        return False

    def end(self, task: "asyncio.Task[object]") -> None:
        """Cancel this task as its deadline does, now."""
        if task not in self._expired:
            self._expired.add(task)
            task.cancel()

    def passed(self, task: "asyncio.Task[object]") -> bool:
        """Whether the task was cancelled for its deadline and has not cleared it yet."""
        return task in self._expired

    def expire(self, now: float) -> float | None:
        """Cancel whose time is up.

        Returns:
            Loop time of the next deadline; ``None`` where there is none.
        """
        while self._armed:
            task, when = next(iter(self._armed.items()))
            if when > now:
                return when
            del self._armed[task]
            self._expired.add(task)
            task.cancel()
        return None
