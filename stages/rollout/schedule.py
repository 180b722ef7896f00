"""Which request sits in which slot and what it does next. Bookkeeping only: no device, no thread, no clock.

A slot holds the tokens of one session (``rows.py``), and of a session one request at a time (``sessions.py``). A request is
*read in* (prefilled) until all but its last token are cached; from then on each step feeds the last token and adds the sampled
one (``replies.py``). So every token is sampled by the one decode step, and a reply's last token is fed only if the episode goes
on.

A beginning that another row has read in is copied, not read in again, and a request whose next tokens are about to be read in
by one that came before it waits for them: members of a group have their prompt read in once. Both are decided anew before each
step, from what the rows hold then, so nothing is left over when the one waited for is cancelled. What a session has decoded is
never given up for a copy: it differs in the last bits, and whether there is a row to copy from depends on who else is here.

The worker calls, in this order: submit, cancel, release, abort, and what new weights ask for; admit; then read_in or decode,
and its commit. Before a step it makes the moves that ``take_moves`` gives.

Axes: S slots, T positions of a slot, R rows of a prefill step, C tokens of a row, N rows of a decode step.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np

from stages.rollout.config import EngineConfig
from stages.rollout.replies import Replies, nothing
from stages.rollout.rows import Rows, common_prefix
from stages.rollout.sampling import Draw, Drawn
from stages.rollout.sessions import Sessions
from stages.rollout.steps import Copy, Decode, Exchange, Job, Move, Outcome, ReadIn


class Schedule:
    """Slots, the shelf, and the queue before them."""

    def __init__(self, config: EngineConfig):
        self.rows = Rows(config.slots, config.kept, config.context_length)
        self.waiting: deque[Job] = deque()
        self.kept_tokens = self.shared_tokens = 0
        self.prefill_buckets, self.decode_buckets = config.prefill_buckets, config.decode_buckets
        """Numbers of rows a step may have, ascending."""
        self.hold_new_sessions = False
        """New weights wait for the sessions that have begun: no other session begins."""
        self._config = config
        self._moves: list[Move] = []
        self._sessions = Sessions()
        self._replies = Replies(self.rows.ids_RT[: config.slots])

    @property
    def jobs(self) -> Sequence[Job | None]:
        """The request in each slot."""
        return self._replies.jobs

    @property
    def num_busy(self) -> int:
        """Slots with a request."""
        return int(self._replies.running_S.sum())

    @property
    def num_live(self) -> int:
        """Sessions that have begun and are not over."""
        return self._sessions.num_live

    def submit(self, job: Job) -> None:
        """Queue a request; requests get slots in the order they came."""
        self.waiting.append(job)

    def cancel(self, job: Job) -> None:
        """Give a request up; its session keeps what is cached. A request that is no longer here is ignored."""
        if job in self.waiting:
            self.waiting.remove(job)
            self._end(job)
        elif job in self.jobs:
            self._vacate(self.jobs.index(job))

    def abort(self, session: str) -> list[Outcome]:
        """End the session's requests with what they have sampled so far, be it nothing."""
        running = [slot for slot, job in enumerate(self.jobs) if job is not None and job.request.session == session]
        ended: list[Outcome] = [(job, nothing(job.request)) for job in self.waiting if job.request.session == session]
        ended += [(self.jobs[slot], self._replies.sample(slot, "aborted")) for slot in running]
        for job, _ in ended:
            self.cancel(job)
        return ended

    def release(self, session: str) -> None:
        """The session will not come back. Requests of it that wait or run end undisturbed; it stays live until then."""
        pending = (job for job in (*self.jobs, *self.waiting) if job is not None and job.request.session == session)
        if self._sessions.release(session, pending):
            self.rows.disown(session)

    def take_moves(self) -> list[Move]:
        """Copies to make now, in order."""
        moves, self._moves = self._moves, []
        return moves

    def admit(self) -> list[tuple[int, Job]]:
        """Give slots to waiting requests, first come first served, while a slot is idle; tells who got which."""
        held: deque[Job] = deque()
        placed: list[tuple[int, Job]] = []
        while self.waiting and not self._replies.running_S.all():
            job = self.waiting.popleft()
            if self._must_wait(job.request.session):
                held.append(job)
            else:
                slot = self._choose(job.request.session)
                self._place(job, slot)
                placed.append((slot, job))
        self.waiting.extendleft(reversed(held))
        return placed

    def read_in(self) -> ReadIn | None:
        """The next prefill step, for the requests that got their slots first; ``None`` where nothing is to be read in."""
        chunk, most = self._config.prefill_chunk, self.prefill_buckets[-1]
        slots: list[int] = []
        rows: list[tuple[int, int]] = []
        for slot in sorted(self._behind(), key=self._replies.came_S.__getitem__):
            if self._to_read_in(slot, slots):
                slots.append(slot)
                rows += [(slot, start) for start in range(int(self.rows.cached_R[slot]), self._needed(slot), chunk)]
            if len(rows) >= most:
                break
        if not rows:
            return None
        num_rows = _fitting(self.prefill_buckets, min(len(rows), most))
        work = ReadIn(np.zeros((num_rows, chunk), np.int32), *(np.zeros(num_rows, np.int32) for _ in range(3)))
        for row, (slot, start) in enumerate(rows[:most]):
            stop = min(start + chunk, self._needed(slot))
            work.ids_RC[row, : stop - start] = self.rows.ids_RT[slot, start:stop]
            work.starts_R[row], work.lengths_R[row], work.slots_R[row] = start, stop - start, slot
        return work

    def commit_read_in(self, work: ReadIn) -> None:
        """The step's tokens are cached."""
        for slot, num in zip(work.slots_R.tolist(), work.lengths_R.tolist(), strict=True):
            if num:
                self.rows.read_in(slot, num)

    def decode(self) -> Decode | None:
        """The next decode step; ``None`` where no request is ready for one."""
        replies, slots = self._replies, self._config.slots
        ready_S = replies.running_S & (self.rows.cached_R[:slots] == replies.length_S - 1)
        ready = np.flatnonzero(ready_S).astype(np.int32)
        if not len(ready):
            return None
        num_rows = _fitting(self.decode_buckets, len(ready))
        slots_N, lengths_N = np.zeros(num_rows, np.int32), np.zeros(num_rows, np.int32)
        if num_rows == slots:
            slots_N[:], lengths_N[:] = np.arange(slots), ready_S
        else:
            slots_N[: len(ready)], lengths_N[: len(ready)] = ready, 1
        positions_N = np.maximum(replies.length_S[slots_N] - 1, 0)
        ids_N = self.rows.ids_RT[slots_N, positions_N]
        return Decode(ids_N, positions_N, lengths_N, slots_N, Draw(*(values[slots_N] for values in replies.draw)))

    def commit_decode(self, work: Decode, drawn: Drawn, version: int) -> list[Outcome]:
        """Append the sampled tokens; returns the requests that ended with their outcome, their slots vacated."""
        taking_part = np.flatnonzero(work.lengths_N)
        slots = work.slots_N[taking_part]
        self.rows.cached_R[slots] = self._replies.length_S[slots]
        self._replies.append(slots, Drawn(*(values[taking_part] for values in drawn)), version)
        ended = [(slot, outcome) for slot in slots.tolist() if (outcome := self._replies.outcome(slot)) is not None]
        return [(self._vacate(slot), outcome) for slot, outcome in ended]

    def _must_wait(self, session: str) -> bool:
        """Whether a session may not go on, or begin, yet. Those that have begun go on, whatever waits before them."""
        if self._sessions.is_live(session):
            return self._sessions.is_running(session)
        full = self._config.eviction == "never" and self.num_live >= self._config.slots + self._config.kept
        return full or self.hold_new_sessions

    def _choose(self, session: str) -> int:
        """An idle slot, with what the session has cached where there is any."""
        self._sessions.run(session)
        row = self.rows.row_of(session)
        idle = np.flatnonzero(~self._replies.running_S).tolist()
        if row in idle:
            return row
        slot = self.rows.free_slot(idle)
        if row is not None:
            self._exchange(slot, row)
            return slot
        if (place := self.rows.place_for(slot)) is not None:
            self._exchange(slot, place)
        self.rows.own(slot, session)
        return slot

    def _place(self, job: Job, slot: int) -> None:
        ids = job.request.ids
        self.rows.keep(slot, common_prefix(self.rows.ids_RT[slot], ids[:-1]))
        self.rows.touch(slot)
        self.kept_tokens += int(self.rows.cached_R[slot])
        self._replies.begin(slot, job, cached=int(self.rows.cached_R[slot]))

    def _exchange(self, slot: int, place: int) -> None:
        self.rows.exchange(slot, place)
        self._moves.append(Exchange(slot, place))

    def _behind(self) -> list[int]:
        """Slots whose context is not cached up to its last token."""
        replies = self._replies
        return np.flatnonzero(replies.running_S & (self.rows.cached_R[: self._config.slots] < replies.length_S - 1)).tolist()

    def _needed(self, slot: int) -> int:
        """Tokens to be cached before the slot can decode: all but the last."""
        return int(self._replies.length_S[slot]) - 1

    def _to_read_in(self, slot: int, before: Sequence[int]) -> bool:
        """Whether the slot takes part in the step, after a copy of what another has where that saves it a row of the step.

        Args:
            slot: behind.
            before: slots that take part already.
        """
        if self.rows.shareable_R[slot] < self.rows.cached_R[slot]:
            return True
        needed = self._needed(slot)
        wanted_T = self.rows.ids_RT[slot, :needed]
        source, common = self.rows.best_prefix(wanted_T, but=slot)
        coming = max((self._common_to_come(one, wanted_T) for one in before), default=0)
        if coming > common and self._saves(slot, coming):
            return False
        if self._saves(slot, common):
            self.shared_tokens += common - int(self.rows.cached_R[slot])
            self._replies.copied(slot, common)
            self.rows.copy(source, slot, common)
            self._moves.append(Copy(source, slot))
        return common < needed

    def _common_to_come(self, one: int, wanted_T: np.ndarray) -> int:
        """How much of a context can be shared from a slot once it is read in."""
        if self.rows.shareable_R[one] < self.rows.cached_R[one]:
            return 0
        return common_prefix(self.rows.ids_RT[one, : self._needed(one)], wanted_T)

    def _saves(self, slot: int, common: int) -> bool:
        """Whether having so many tokens cached saves the slot a row of a prefill step."""
        needed, chunk = self._needed(slot), self._config.prefill_chunk
        return -(-(needed - common) // chunk) < -(-(needed - int(self.rows.cached_R[slot])) // chunk)

    def _vacate(self, slot: int) -> Job:
        job = self._replies.end(slot)
        self._sessions.pause(job.request.session)
        self.rows.touch(slot)
        self._end(job)
        return job

    def _end(self, job: Job) -> None:
        if self._sessions.end(job):
            self.rows.disown(job.request.session)


def _fitting(buckets: Sequence[int], num: int) -> int:
    """The smallest size for so many rows."""
    return next(size for size in buckets if size >= num)
