"""What is being sampled in each slot, and what becomes of it. It does not choose slots, and it caches nothing.

Axes: S slots, T positions of a slot.
"""

import math
from typing import Literal

import numpy as np

from stages.policy import Sample, SampleRequest
from stages.rollout.sampling import Drawn, no_draws
from stages.rollout.steps import Job


class Replies:
    """The requests in the slots and their tokens so far.

    Args:
        ids_ST: tokens of the slots' rows, shared with them: written here as they are sampled.
    """

    def __init__(self, ids_ST: np.ndarray):
        slots, self._context_length = ids_ST.shape
        self.jobs: list[Job | None] = [None] * slots
        self.running_S = np.zeros(slots, bool)
        self.length_S = np.zeros(slots, np.int32)
        """Tokens of context and reply."""
        self.draw = no_draws(slots)
        """How to sample in each slot."""
        self.came_S = np.zeros(slots, np.int64)
        """How many requests had a slot before the one that has it now."""
        self.cached_S = np.zeros(slots, np.int32)
        """Context tokens of the request that were found or copied, not read in."""
        self._num_begun = 0
        self._ids_ST = ids_ST
        self._limit_S = np.zeros(slots, np.int32)
        self._logprobs_ST = np.zeros(ids_ST.shape, np.float32)
        self._untempered_ST = np.zeros(ids_ST.shape, np.float32)
        self._versions_ST = np.zeros(ids_ST.shape, np.int32)

    def begin(self, slot: int, job: Job, cached: int) -> None:
        """Put a request into a slot."""
        request, num = job.request, len(job.request.ids)
        self._ids_ST[slot, :num] = request.ids
        self.length_S[slot] = num
        self._limit_S[slot] = min(num + request.max_tokens, self._context_length)
        self.cached_S[slot] = cached
        wanted = (request.temperature, request.top_k, request.top_p, request.min_p, request.untempered, job.key_2)
        for values, value in zip(self.draw, wanted, strict=True):
            values[slot] = value
        self.jobs[slot] = job
        self.running_S[slot] = True
        self.came_S[slot] = self._num_begun
        self._num_begun += 1

    def copied(self, slot: int, tokens: int) -> None:
        """So many tokens were copied instead of read in. It counts where it is the context, not a reply read in anew."""
        if self.length_S[slot] == len(self.jobs[slot].request.ids):
            self.cached_S[slot] = tokens

    def append(self, slots: np.ndarray, drawn: Drawn, version: int) -> None:
        """Add a token to each of some slots, drawn for them in this order."""
        at = self.length_S[slots]
        self._ids_ST[slots, at] = drawn.ids_S
        self._logprobs_ST[slots, at] = drawn.logprobs_S
        self._untempered_ST[slots, at] = drawn.untempered_S
        self._versions_ST[slots, at] = version
        self.length_S[slots] = at + 1

    def outcome(self, slot: int) -> Sample | Exception | None:
        """What the request in the slot has come to with its newest token, the last there is; ``None`` while it goes on."""
        job, stop = self.jobs[slot], int(self.length_S[slot])
        logprob = float(self._logprobs_ST[slot, stop - 1])
        if not math.isfinite(logprob):
            return FloatingPointError(
                f"expected a finite log-probability; got {logprob} for token {self._ids_ST[slot, stop - 1]} at position "
                f"{stop - 1} of session {job.request.session!r} in the engine, weights version "
                f"{self._versions_ST[slot, stop - 1]}; the weights have diverged: lower the learning rate or clip the gradient"
            )
        try:
            ended = job.stops.ended_by(self._ids_ST[slot, len(job.request.ids) : stop])
        except Exception as error:
            # Reading is the tokenizer's work: a fault of it is this request's, and the others go on.
            return error
        if ended:
            return self.sample(slot, "stop")
        return self.sample(slot, "length") if stop >= self._limit_S[slot] else None

    def sample(self, slot: int, reason: Literal["stop", "length", "aborted"]) -> Sample:
        """What there is."""
        request = self.jobs[slot].request
        span = np.s_[slot, len(request.ids) : int(self.length_S[slot])]
        return Sample(
            ids=self._ids_ST[span].copy(),
            logprobs=self._logprobs_ST[span].copy(),
            versions=self._versions_ST[span].copy(),
            stop_reason=reason,
            untempered=self._untempered_ST[span].copy() if request.untempered else None,
            num_cached=int(self.cached_S[slot]),
        )

    def end(self, slot: int) -> Job:
        """Take the request out."""
        job, self.jobs[slot] = self.jobs[slot], None
        self.running_S[slot] = False
        return job


def nothing(request: SampleRequest) -> Sample:
    """Of a request that was given up before it had a slot."""
    none = np.zeros(0, np.float32)
    integers = none.astype(np.int32)
    return Sample(integers, none, integers.copy(), "aborted", none.copy() if request.untempered else None, 0)
