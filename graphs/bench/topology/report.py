"""What the process with the devices found, as it hands it on: values only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from graphs.bench.topology.collectives import Collectives
from graphs.bench.topology.memory import Device
from graphs.bench.topology.placed_run import PER_TOKEN, Placed, Sync
from graphs.bench.topology.simulated import Times
from graphs.bench.topology.timed import Rate


@dataclass(frozen=True)
class Beside:
    """A training beside the colocated one.

    Attributes:
        same: whether these are equal to the bit, in all steps.
        off: largest difference of a number; ``None`` where other tokens were trained, so that there is nothing to compare.
    """

    same: Mapping[str, bool]
    off: Mapping[str, float | None]


@dataclass(frozen=True)
class Found:
    """A training on its devices.

    Attributes:
        devices: by role.
        shares: whether a role computes on the trainer's devices.
        losses: of each step.
        digests: of the parameters after each.
        num_segments: that were trained.
        beside: the colocated one.
        sync: what a weight sync moves.
        memory: of each device.
        collectives: of each program, by role and name.
        loads: parameters that the engine says it has put in force, over the size of the model.
    """

    devices: Mapping[str, int]
    shares: Mapping[str, bool]
    losses: Sequence[float]
    digests: Sequence[str]
    num_segments: int
    beside: Beside
    sync: Sync
    memory: Sequence[Device]
    collectives: Mapping[str, Collectives]
    loads: float


@dataclass(frozen=True)
class Report:
    """All of it.

    Attributes:
        platform: of the devices, as JAX calls it.
        device_kind: of each.
        num_devices: of a topology.
        virtual: whether they are parts of one processor.
        budget: trainings on all devices, by topology.
        alone: trainings in which every role has a mesh of one shape.
        times: of the stages on one device.
        timed: how fast that run was.
        rates: measured ones of each topology; empty on virtual devices.
    """

    platform: str
    device_kind: str
    num_devices: int
    virtual: bool
    budget: Mapping[str, Found]
    alone: Mapping[str, Found]
    times: Times
    timed: Rate
    rates: Mapping[str, Rate]


def beside(base: Placed, other: Placed) -> Beside:
    """Compare two trainings, step by step and segment by segment."""
    pairs = [
        (one[name], two[name]) for one, two in zip(base.segments, other.segments, strict=True) for name in one if name in two
    ]
    names_equal = [list(one) for one in base.segments] == [list(two) for two in other.segments]
    tokens = names_equal and all(np.array_equal(one[what], two[what]) for one, two in pairs for what in ("ids", "mask"))
    same: dict[str, bool] = {"tokens": tokens, "rewards": base.rewards == other.rewards}
    off: dict[str, float | None] = {}
    for what in (name for name in PER_TOKEN if name not in ("ids", "mask")):
        same[what] = tokens and all(np.array_equal(one[what], two[what]) for one, two in pairs)
        gaps = [float(np.abs(one[what] - two[what]).max(initial=0.0)) for one, two in pairs] if tokens else []
        off[what] = max(gaps, default=0.0) if tokens else None
    same["losses"], same["parameters"] = base.losses == other.losses, base.digests == other.digests
    off["losses"] = max(abs(one - two) for one, two in zip(base.losses, other.losses, strict=True))
    off["parameters"] = max(
        float(np.abs(leaf - other.parameters[name]).max(initial=0.0)) for name, leaf in base.parameters.items()
    )
    return Beside(same, off)
