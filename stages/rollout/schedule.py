"""Which request sits in which slot and what it does next. Bookkeeping only: no device, no thread, no clock.

A slot holds the tokens of one session (``rows.py``). A request is *read in* (prefilled) until all but its last token are
cached; from then on each step feeds the last token and adds the sampled one. So every token is sampled by the one decode step,
and a reply's last token is fed only if the episode goes on.

A beginning that another row has read in is copied, not read in again, and a request whose next tokens are about to be read in
by one that came before it waits for them: members of a group have their prompt read in once. Both are decided anew before each
step, from what the rows hold then, so nothing is left over when the one waited for is cancelled.

The worker calls, in this order: submit, cancel, release, abort, and what new weights ask for; admit; then read_in or decode,
and its commit. Before a step it makes the moves that ``take_moves`` gives.

Axes: S slots, T positions of a slot, R rows of a prefill step, C tokens of a row.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from stages.policy import Sample, SampleRequest
from stages.rollout.config import EngineConfig
from stages.rollout.rows import Rows, common_prefix
from stages.rollout.sampling import Draw, Drawn, no_draws
from stages.rollout.stops import Stops


@dataclass(frozen=True, eq=False)
class Job:
    """A request on its way through the engine; compared by identity."""

    request: SampleRequest
    key_2: np.ndarray
    """uint32 [2]: see ``sampling.request_key``."""
    stops: Stops
    """When its reply ends."""


class Copy(NamedTuple):
    """Copy the cache of a row into a slot."""

    source: int
    slot: int


class Exchange(NamedTuple):
    """Let a slot and a row of the shelf change places."""

    slot: int
    place: int


Move = Copy | Exchange


class ReadIn(NamedTuple):
    """Input of a prefill step. Rows without work have length 0."""

    ids_RC: np.ndarray
    starts_R: np.ndarray
    lengths_R: np.ndarray
    slots_R: np.ndarray


class Decode(NamedTuple):
    """Input of a decode step over all slots. A slot that does not take part has length 0."""

    ids_S: np.ndarray
    positions_S: np.ndarray
    lengths_S: np.ndarray
    draw: Draw


Outcome = tuple[Job, Sample | Exception]


class Schedule:
    """Slots, the shelf, and the queue before them."""

    def __init__(self, config: EngineConfig):
        slots, length = config.slots, config.context_length
        self.rows = Rows(slots, config.kept, length)
        self.waiting: deque[Job] = deque()
        self.kept_tokens = self.shared_tokens = 0
        self.buckets = config.prefill_buckets
        """Numbers of rows a prefill step may have, ascending."""
        self.hold_new_sessions = False
        """New weights wait for the sessions that have begun: no other session begins."""
        self._config = config
        self._moves: list[Move] = []
        self._live: set[str] = set()
        self._jobs: list[Job | None] = [None] * slots
        self._running_S = np.zeros(slots, bool)
        self._length_S = np.zeros(slots, np.int32)
        self._limit_S = np.zeros(slots, np.int32)
        self._reused_S = np.zeros(slots, np.int32)
        self._draw = no_draws(slots)
        self._logprobs_ST = np.zeros((slots, length), np.float32)
        self._untempered_ST = np.zeros((slots, length), np.float32)
        self._versions_ST = np.zeros((slots, length), np.int32)

    @property
    def num_busy(self) -> int:
        """Slots with a request."""
        return int(self._running_S.sum())

    @property
    def num_live(self) -> int:
        """Sessions that had a request here and were not released, and requests that outlived theirs."""
        return len(self._live) + sum(job is not None and job.request.session not in self._live for job in self._jobs)

    def submit(self, job: Job) -> None:
        """Queue a request; requests get slots in the order they came."""
        self.waiting.append(job)

    def cancel(self, job: Job) -> None:
        """Give a request up; its session keeps what is cached. A request that is no longer here is ignored."""
        if job in self.waiting:
            self.waiting.remove(job)
        elif job in self._jobs:
            self._vacate(self._jobs.index(job))

    def abort(self, session: str) -> list[Outcome]:
        """End the session's requests with what they have sampled so far, be it nothing."""
        waiting = [job for job in self.waiting if job.request.session == session]
        running = [slot for slot, job in enumerate(self._jobs) if job is not None and job.request.session == session]
        ended: list[Outcome] = [(job, _nothing(job.request)) for job in waiting]
        ended += [(self._jobs[slot], self._sample(slot, "aborted")) for slot in running]
        for job, _ in ended:
            self.cancel(job)
        return ended

    def release(self, session: str) -> None:
        """The session will not come back. A request of it that still runs ends undisturbed."""
        self._live.discard(session)
        self.rows.disown(session)

    def take_moves(self) -> list[Move]:
        """Copies to make now, in order."""
        moves, self._moves = self._moves, []
        return moves

    def admit(self) -> None:
        """Give slots to waiting requests, first come first served, while a slot is idle."""
        held: deque[Job] = deque()
        while self.waiting and not self._running_S.all():
            job = self.waiting.popleft()
            if self._must_wait(job.request.session):
                held.append(job)
            else:
                self._place(job, self._choose(job.request.session))
        self.waiting.extendleft(reversed(held))

    def read_in(self) -> ReadIn | None:
        """The next prefill step, for the requests that got their slots first; ``None`` where nothing is to be read in."""
        chunk, buckets = self._config.prefill_chunk, self.buckets
        slots: list[int] = []
        for slot in sorted(self._behind(), key=self.rows.used):
            if self._to_read_in(slot, slots):
                slots.append(slot)
            if len(slots) == buckets[-1]:
                break
        if not slots:
            return None
        num_rows = next(rows for rows in buckets if rows >= len(slots))
        work = ReadIn(np.zeros((num_rows, chunk), np.int32), *(np.zeros(num_rows, np.int32) for _ in range(3)))
        for row, slot in enumerate(slots):
            start = int(self.rows.cached_R[slot])
            stop = min(start + chunk, int(self._length_S[slot]) - 1)
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
        slots = len(self._running_S)
        ready_S = self._running_S & (self.rows.cached_R[:slots] == self._length_S - 1)
        if not ready_S.any():
            return None
        positions_S = np.maximum(self._length_S - 1, 0)
        ids_S = self.rows.ids_RT[np.arange(slots), positions_S]
        return Decode(ids_S, positions_S, ready_S.astype(np.int32), Draw(*(values.copy() for values in self._draw)))

    def commit_decode(self, work: Decode, drawn: Drawn, version: int) -> list[Outcome]:
        """Append the sampled tokens; returns the requests that ended with their outcome, their slots vacated."""
        slots = np.flatnonzero(work.lengths_S)
        at = self._length_S[slots]
        self.rows.ids_RT[slots, at] = drawn.ids_S[slots]
        self._logprobs_ST[slots, at] = drawn.logprobs_S[slots]
        self._untempered_ST[slots, at] = drawn.untempered_S[slots]
        self._versions_ST[slots, at] = version
        self.rows.cached_R[slots] = at
        self._length_S[slots] = at + 1
        outcomes = [(self._jobs[slot], outcome) for slot in slots.tolist() if (outcome := self._outcome(slot)) is not None]
        for job, _ in outcomes:
            self._vacate(self._jobs.index(job))
        return outcomes

    def _must_wait(self, session: str) -> bool:
        """Whether a session may not begin yet. Those that have begun go on, whatever waits before them."""
        if session in self._live:
            return False
        full = self._config.eviction == "never" and len(self._live) >= self._config.slots + self._config.kept
        return full or self.hold_new_sessions

    def _choose(self, session: str) -> int:
        """An idle slot, with what the session has cached where there is any."""
        self._live.add(session)
        row = self.rows.row_of(session)
        idle = np.flatnonzero(~self._running_S).tolist()
        if row in idle:
            return row
        slot = self.rows.free_slot(idle)
        if row is not None and row >= self.rows.slots:
            self._exchange(slot, row)
            return slot
        if (place := self.rows.place_for(slot)) is not None:
            self._exchange(slot, place)
        # A second request of a session whose first one runs works for nobody's account.
        self.rows.own(slot, session if row is None else None)
        return slot

    def _place(self, job: Job, slot: int) -> None:
        request, num = job.request, len(job.request.ids)
        self.rows.keep(slot, common_prefix(self.rows.ids_RT[slot], request.ids[: num - 1]))
        self._reused_S[slot] = self.rows.cached_R[slot]
        self.kept_tokens += int(self.rows.cached_R[slot])
        self.rows.ids_RT[slot, :num] = request.ids
        self.rows.touch(slot)
        self._length_S[slot] = num
        self._limit_S[slot] = min(num + request.max_tokens, self._config.context_length)
        wanted = (request.temperature, request.top_k, request.top_p, request.min_p, request.untempered, job.key_2)
        for values, value in zip(self._draw, wanted, strict=True):
            values[slot] = value
        self._jobs[slot] = job
        self._running_S[slot] = True

    def _exchange(self, slot: int, place: int) -> None:
        self.rows.exchange(slot, place)
        self._moves.append(Exchange(slot, place))

    def _behind(self) -> list[int]:
        """Slots whose context is not cached up to its last token."""
        slots = len(self._running_S)
        return np.flatnonzero(self._running_S & (self.rows.cached_R[:slots] < self._length_S - 1)).tolist()

    def _to_read_in(self, slot: int, before: Sequence[int]) -> bool:
        """Whether the slot takes part in the step, after a copy of what another row has where that saves it a step.

        Args:
            slot: behind.
            before: slots that take part already.
        """
        needed = int(self._length_S[slot]) - 1
        wanted_T = self.rows.ids_RT[slot, :needed]
        source, common = self.rows.best_prefix(wanted_T, but=slot)
        coming = max((self._common_to_come(one, wanted_T) for one in before), default=0)
        if coming > common and self._saves(slot, coming):
            return False
        if self._saves(slot, common):
            self.shared_tokens += common - int(self.rows.cached_R[slot])
            self._reused_S[slot] = common
            self.rows.copy(source, slot, common)
            self._moves.append(Copy(source, slot))
        return common < needed

    def _common_to_come(self, one: int, wanted_T: np.ndarray) -> int:
        """How much of a context can be shared from a slot once it is read in."""
        if self.rows.shareable_R[one] < self.rows.cached_R[one]:
            return 0
        return common_prefix(self.rows.ids_RT[one, : int(self._length_S[one]) - 1], wanted_T)

    def _saves(self, slot: int, common: int) -> bool:
        """Whether having so many tokens cached saves the slot a prefill step."""
        needed, chunk = int(self._length_S[slot]) - 1, self._config.prefill_chunk
        return -(-(needed - common) // chunk) < -(-(needed - int(self.rows.cached_R[slot])) // chunk)

    def _outcome(self, slot: int) -> Sample | Exception | None:
        """What the request in the slot has come to with its newest token, the last there is; ``None`` while it goes on."""
        job, stop = self._jobs[slot], int(self._length_S[slot])
        logprob = float(self._logprobs_ST[slot, stop - 1])
        if not math.isfinite(logprob):
            return FloatingPointError(
                f"expected a finite log-probability; got {logprob} for token {self.rows.ids_RT[slot, stop - 1]} at position "
                f"{stop - 1} of session {job.request.session!r} in the engine, weights version "
                f"{self._versions_ST[slot, stop - 1]}; the weights have diverged: lower the learning rate or clip the gradient"
            )
        try:
            ended = job.stops.ended_by(self.rows.ids_RT[slot, len(job.request.ids) : stop])
        except Exception as error:
            # Reading is the tokenizer's work: a fault of it is this request's, and the others go on.
            return error
        if ended:
            return self._sample(slot, "stop")
        return self._sample(slot, "length") if stop >= self._limit_S[slot] else None

    def _sample(self, slot: int, reason: Literal["stop", "length", "aborted"]) -> Sample:
        request = self._jobs[slot].request
        span = np.s_[slot, len(request.ids) : int(self._length_S[slot])]
        return Sample(
            ids=self.rows.ids_RT[span].copy(),
            logprobs=self._logprobs_ST[span].copy(),
            versions=self._versions_ST[span].copy(),
            stop_reason=reason,
            untempered=self._untempered_ST[span].copy() if request.untempered else None,
            num_cached=int(self._reused_S[slot]),
        )

    def _vacate(self, slot: int) -> None:
        self._jobs[slot] = None
        self._running_S[slot] = False
        self.rows.touch(slot)


def _nothing(request: SampleRequest) -> Sample:
    """Of a request that was given up before it had a slot."""
    none = np.zeros(0, np.float32)
    integers = none.astype(np.int32)
    return Sample(integers, none, integers.copy(), "aborted", none.copy() if request.untempered else None, 0)
