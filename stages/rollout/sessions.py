"""Who has begun and is not over. Names and requests only: where their tokens lie is told by ``rows.py``.

A session has one request in a slot at a time. It is live from its first slot until it is released and its last request of
before then has ended; the same name later is another session.
"""

from collections.abc import Iterable

from stages.rollout.steps import Job


class Sessions:
    """Of one engine."""

    def __init__(self) -> None:
        self._live: set[str] = set()
        self._running: set[str] = set()
        self._leaving: list[set[Job]] = []
        """For each session that was released too early: its requests that have not ended. It leaves with the last of them."""

    @property
    def num_live(self) -> int:
        """How many are live."""
        return len(self._live)

    def is_live(self, session: str) -> bool:
        """Whether it has begun and is not over."""
        return session in self._live

    def is_running(self, session: str) -> bool:
        """Whether a request of it is in a slot."""
        return session in self._running

    def run(self, session: str) -> None:
        """A request of it gets a slot."""
        self._live.add(session)
        self._running.add(session)

    def pause(self, session: str) -> None:
        """Its request has left the slot."""
        self._running.discard(session)

    def release(self, session: str, jobs: Iterable[Job]) -> bool:
        """It will not come back.

        Args:
            session: its name.
            jobs: all requests under this name that have not ended.

        Returns:
            Whether it is over now.
        """
        pending = set(jobs)
        if not pending:
            self._live.discard(session)
            return True
        # Those of an earlier session of the name belong to that one.
        if pending := pending.difference(*self._leaving):
            self._leaving.append(pending)
        return False

    def end(self, job: Job) -> bool:
        """A request has ended; whether its session is over with it."""
        for pending in self._leaving:
            pending.discard(job)
        if all(self._leaving):
            return False
        self._leaving = [pending for pending in self._leaving if pending]
        self._live.discard(job.request.session)
        return True
