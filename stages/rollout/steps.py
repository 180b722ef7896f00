"""What goes between the schedule and the device: requests on their way, and the inputs of the device's programs. Records only.

Axes: R rows of a prefill step, C tokens of a row, N rows of a decode step.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from stages.policy import Sample, SampleRequest
from stages.rollout.sampling import Draw
from stages.rollout.stops import Stops


@dataclass(slots=True)
class Times:
    """When a request came to what, in seconds of ``time.monotonic``. Noted by the worker; the schedule has no clock."""

    asked_s: float = field(default_factory=time.monotonic)
    slot: int = -1
    """The slot it got; -1 before that."""
    began_s: float | None = None
    """It got a slot; ``None`` before that."""
    decoded_s: float | None = None
    """Its first decode step began, the context read in; ``None`` before that."""

    def spent(self, now_s: float) -> tuple[float, float | None, float | None]:
        """Seconds until now in which it waited for a slot, was read in, and decoded; ``None`` for what it did not come to."""
        began_s, decoded_s = self.began_s, self.decoded_s
        if began_s is None:
            return now_s - self.asked_s, None, None
        if decoded_s is None:
            return began_s - self.asked_s, now_s - began_s, None
        return began_s - self.asked_s, decoded_s - began_s, now_s - decoded_s


class Token(NamedTuple):
    """A token of a reply that goes on."""

    id: int
    logprob: float
    version: int


Heard = Callable[[Token], None]
"""Called on the event loop with each token of a reply but the last, which comes with the whole of it."""


@dataclass(frozen=True, eq=False)
class Job:
    """A request on its way through the engine; compared by identity."""

    request: SampleRequest
    key_2: np.ndarray
    """uint32 [2]: see ``sampling.request_key``."""
    stops: Stops
    """When its reply ends."""
    times: Times = field(default_factory=Times)
    heard: Heard | None = None
    """Who wants the tokens one by one; ``None`` for nobody."""


Outcome = tuple[Job, Sample | Exception]
"""What a request has come to."""


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
    """Input of a prefill step. Rows of one slot hold tokens that follow each other; rows without work have length 0."""

    ids_RC: np.ndarray
    starts_R: np.ndarray
    lengths_R: np.ndarray
    slots_R: np.ndarray


class Decode(NamedTuple):
    """Input of a decode step. Rows that take no part have length 0. With as many rows as slots, row r is slot r."""

    ids_N: np.ndarray
    positions_N: np.ndarray
    lengths_N: np.ndarray
    slots_N: np.ndarray
    draw: Draw
    """For each row."""
