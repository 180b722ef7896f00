"""What goes between the schedule and the device: requests on their way, and the inputs of the device's programs. Records only.

Axes: R rows of a prefill step, C tokens of a row, N rows of a decode step.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stages.policy import Sample, SampleRequest
from stages.rollout.sampling import Draw
from stages.rollout.stops import Stops


@dataclass(frozen=True, eq=False)
class Job:
    """A request on its way through the engine; compared by identity."""

    request: SampleRequest
    key_2: np.ndarray
    """uint32 [2]: see ``sampling.request_key``."""
    stops: Stops
    """When its reply ends."""


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
