"""Which request sits in which slot and what it does next. Bookkeeping only: no device, no thread, no clock.

A slot holds the tokens of one session. Of its ``length`` known tokens the first ``cached`` have keys and values on the device.
A request is *read in* (prefilled) until all but its last token are cached; from then on each step feeds the last token and adds
the sampled one. So every token is sampled by the one decode step, and a reply's last token is fed only if the episode goes on.

The worker calls, in this order: submit, cancel, release, forget as asked; admit; then read_in or decode, and its commit.

Axes: S slots, T positions of a slot, R rows of a prefill step, C tokens of a row.
"""

import math
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stages.policy import Sample, SampleRequest


@dataclass(frozen=True, eq=False)
class Job:
    """A request on its way through the engine; compared by identity."""

    request: SampleRequest
    key_2: np.ndarray
    """uint32 [2]: see ``sampling.request_key``."""


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
    temperature_S: np.ndarray
    keys_S2: np.ndarray


class Schedule:
    """Slots and the queue before them."""

    def __init__(self, num_slots: int, context_length: int):
        self.evictions = 0
        self.waiting: deque[Job] = deque()
        self._context_length = context_length
        self._jobs: list[Job | None] = [None] * num_slots
        self._sessions: list[str | None] = [None] * num_slots
        self._used = [0] * num_slots
        self._tick = 0
        self._running_S = np.zeros(num_slots, bool)
        self._length_S = np.zeros(num_slots, np.int32)
        self._cached_S = np.zeros(num_slots, np.int32)
        self._limit_S = np.zeros(num_slots, np.int32)
        self._temperature_S = np.zeros(num_slots, np.float32)
        self._keys_S2 = np.zeros((num_slots, 2), np.uint32)
        self._ids_ST = np.zeros((num_slots, context_length), np.int32)
        self._logprobs_ST = np.zeros((num_slots, context_length), np.float32)
        self._versions_ST = np.zeros((num_slots, context_length), np.int32)

    @property
    def num_busy(self) -> int:
        """Slots with a request."""
        return int(self._running_S.sum())

    def submit(self, job: Job) -> None:
        """Queue a request; requests get slots in the order they came."""
        self.waiting.append(job)

    def cancel(self, job: Job) -> None:
        """Give a request up; its session keeps what is cached. A request that is no longer here is ignored."""
        if job in self.waiting:
            self.waiting.remove(job)
        elif job in self._jobs:
            self._vacate(self._jobs.index(job))

    def release(self, session: str) -> None:
        """The session will not come back. A request of it that still runs ends undisturbed."""
        for slot, name in enumerate(self._sessions):
            if name == session:
                self._sessions[slot] = None
                self._used[slot] = 0

    def forget(self) -> None:
        """Nothing cached is valid any more (new weights). Running requests are read in again, sampled tokens included."""
        self._cached_S[:] = 0

    def admit(self) -> None:
        """Give slots to waiting requests, first come first served, while a slot is idle."""
        while self.waiting and not self._running_S.all():
            job = self.waiting.popleft()
            self._place(job, self._choose(job.request.session))

    def read_in(self, rows: int, chunk: int) -> ReadIn | None:
        """The next prefill step, for the requests that got their slots first; ``None`` where nothing is to be read in."""
        behind_S = self._running_S & (self._cached_S < self._length_S - 1)
        slots = sorted(np.flatnonzero(behind_S), key=self._used.__getitem__)[:rows]
        if not slots:
            return None
        work = ReadIn(np.zeros((rows, chunk), np.int32), *(np.zeros(rows, np.int32) for _ in range(3)))
        for row, slot in enumerate(slots):
            start = self._cached_S[slot]
            stop = min(start + chunk, self._length_S[slot] - 1)
            work.ids_RC[row, : stop - start] = self._ids_ST[slot, start:stop]
            work.starts_R[row], work.lengths_R[row], work.slots_R[row] = start, stop - start, slot
        return work

    def commit_read_in(self, work: ReadIn) -> None:
        """The step's tokens are cached."""
        np.add.at(self._cached_S, work.slots_R, work.lengths_R)

    def decode(self) -> Decode | None:
        """The next decode step; ``None`` where no request is ready for one."""
        ready_S = self._running_S & (self._cached_S == self._length_S - 1)
        if not ready_S.any():
            return None
        positions_S = np.maximum(self._length_S - 1, 0)
        ids_S = self._ids_ST[np.arange(len(positions_S)), positions_S]
        return Decode(ids_S, positions_S, ready_S.astype(np.int32), self._temperature_S.copy(), self._keys_S2.copy())

    def commit_decode(
        self, work: Decode, ids_S: np.ndarray, logprobs_S: np.ndarray, version: int
    ) -> list[tuple[Job, Sample | FloatingPointError]]:
        """Append the sampled tokens; returns the requests that ended with their outcome, their slots vacated."""
        slots = np.flatnonzero(work.lengths_S)
        at = self._length_S[slots]
        self._ids_ST[slots, at] = ids_S[slots]
        self._logprobs_ST[slots, at] = logprobs_S[slots]
        self._versions_ST[slots, at] = version
        self._cached_S[slots] = at
        self._length_S[slots] = at + 1
        over = (at + 1 >= self._limit_S[slots]) | ~np.isfinite(logprobs_S[slots])
        newest = zip(slots.tolist(), ids_S[slots].tolist(), over.tolist(), strict=True)
        ended = [slot for slot, token, is_over in newest if is_over or token in self._jobs[slot].request.stop_ids]
        outcomes = [(self._jobs[slot], self._outcome(slot)) for slot in ended]
        for slot in ended:
            self._vacate(slot)
        return outcomes

    def _choose(self, session: str) -> int:
        """An idle slot: the session's own, else one nobody owns, else the one whose session has been idle longest."""
        idle = np.flatnonzero(~self._running_S).tolist()
        for slot in idle:
            if self._sessions[slot] == session:
                return slot
        # Slots nobody owns have ``_used`` 0, so they come first.
        slot = min(idle, key=self._used.__getitem__)
        self.evictions += self._sessions[slot] is not None
        self._sessions[slot] = session
        self._cached_S[slot] = 0
        return slot

    def _place(self, job: Job, slot: int) -> None:
        ids_T = job.request.ids
        num = len(ids_T)
        kept = min(int(self._cached_S[slot]), num - 1)
        same_T = self._ids_ST[slot, :kept] == ids_T[:kept]
        self._cached_S[slot] = kept if same_T.all() else int(np.argmin(same_T))
        self._ids_ST[slot, :num] = ids_T
        self._length_S[slot] = num
        self._limit_S[slot] = min(num + job.request.max_tokens, self._context_length)
        self._temperature_S[slot] = job.request.temperature
        self._keys_S2[slot] = job.key_2
        self._jobs[slot] = job
        self._running_S[slot] = True
        self._touch(slot)

    def _outcome(self, slot: int) -> Sample | FloatingPointError:
        """What the request in the slot comes to, with its newest token the last."""
        request = self._jobs[slot].request
        stop = int(self._length_S[slot])
        newest = int(self._ids_ST[slot, stop - 1])
        logprob = float(self._logprobs_ST[slot, stop - 1])
        if not math.isfinite(logprob):
            return FloatingPointError(
                f"expected a finite log-probability; got {logprob} for token {newest} at position {stop - 1} of session "
                f"{request.session!r} in the engine, weights version {self._versions_ST[slot, stop - 1]}; "
                "the weights have diverged: lower the learning rate or clip the gradient"
            )
        span = np.s_[slot, len(request.ids) : stop]
        reason = "stop" if newest in request.stop_ids else "length"
        return Sample(self._ids_ST[span].copy(), self._logprobs_ST[span].copy(), self._versions_ST[span].copy(), reason)

    def _vacate(self, slot: int) -> None:
        self._jobs[slot] = None
        self._running_S[slot] = False
        if self._sessions[slot] is not None:
            self._touch(slot)

    def _touch(self, slot: int) -> None:
        self._tick += 1
        self._used[slot] = self._tick
