"""What has to travel where arrays lie on some devices and are wanted on others: counted from their shardings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Sharding

Part = tuple[slice, ...]


@dataclass(frozen=True)
class Moved:
    """One transfer.

    Attributes:
        wanted_bytes: on all target devices together.
        received_bytes: of these, what they do not hold already.
        fullest_bytes: the same of the device that receives most.
    """

    wanted_bytes: int
    received_bytes: int
    fullest_bytes: int


def moved(sources: Sequence[Any], targets: Sequence[Any]) -> Moved:
    """What target devices want and do not hold already.

    Args:
        sources: arrays, or their shapes, where they lie.
        targets: the same ones where they are wanted, in the same order, in the type in which they travel.
    """
    wanted = 0
    received: dict[jax.Device, int] = {}
    for source, target in zip(sources, targets, strict=True):
        have, want = _parts(source.sharding, source.shape), _parts(target.sharding, target.shape)
        item = np.dtype(target.dtype).itemsize
        for device, part in want.items():
            size = _size(part, target.shape)
            wanted += size * item
            missing = size - (_overlap(part, have[device], target.shape) if device in have else 0)
            received[device] = received.get(device, 0) + missing * item
    return Moved(wanted, sum(received.values()), max(received.values(), default=0))


def _parts(sharding: Sharding, shape: tuple[int, ...]) -> Mapping[jax.Device, Part]:
    return {device: part for device, part in sharding.devices_indices_map(shape).items() if part is not None}


def _size(part: Part, shape: tuple[int, ...]) -> int:
    return _overlap(part, part, shape)


def _overlap(one: Part, other: Part, shape: tuple[int, ...]) -> int:
    """Elements in both."""
    count = 1
    for a, b, size in zip(one, other, shape, strict=True):
        (start, stop, _), (begin, end, _) = a.indices(size), b.indices(size)
        count *= max(0, min(stop, end) - max(start, begin))
    return count
