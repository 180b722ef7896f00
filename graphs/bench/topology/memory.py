"""Memory of each device: the arrays that each role holds there, measured from the arrays, and what programs work in besides."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax

from stages.memory_in_use import device_peak_bytes
from stages.scoring.held import RESTS

Place = tuple[int, int]
"""Id of a device, and an address in its memory."""


@dataclass(frozen=True)
class Program:
    """What the compiler says of a program, on each of its devices.

    Attributes:
        role: whose.
        name: with its shape.
        devices: ids.
        temporary_bytes: that it works in, beside what it is given and gives.
        new_bytes: that it gives in new arrays, not in those that it was given for this.
    """

    role: str
    name: str
    devices: tuple[int, ...]
    temporary_bytes: int
    new_bytes: int


@dataclass(frozen=True)
class Device:
    """One device.

    Attributes:
        number: its id.
        held_bytes: of arrays, by role and what they are, as ``engine: weights``; what several roles share counts for the first.
        unknown_bytes: of arrays that nobody of them has.
        program: that takes most beside these; ``None`` where none runs here.
        program_bytes: that this takes.
        peak_bytes: most that was ever in use, as the runtime says; ``None`` where it does not, as on CPU.
    """

    number: int
    held_bytes: Mapping[str, int]
    unknown_bytes: int
    program: str | None
    program_bytes: int
    peak_bytes: int | None

    @property
    def arrays_bytes(self) -> int:
        """Of all arrays on it."""
        return sum(self.held_bytes.values()) + self.unknown_bytes

    @property
    def most_bytes(self) -> int:
        """Of the arrays while the largest program runs."""
        return self.arrays_bytes + self.program_bytes


def places_of(arrays: Iterable[jax.Array]) -> dict[Place, int]:
    """Bytes by place of all parts of arrays that this process has; those in host memory are left out."""
    found: dict[Place, int] = {}
    for array in arrays:
        if not array.is_deleted() and array.sharding.memory_kind != RESTS:
            for shard in array.addressable_shards:
                found[shard.device.id, shard.data.unsafe_buffer_pointer()] = shard.data.nbytes
    return found


def program_of(role: str, name: str, program: Any, devices: Iterable[jax.Device]) -> Program:
    """What the compiler says of a compiled program; nothing where it says nothing."""
    told = program.memory_analysis()
    temporary = 0 if told is None else int(told.temp_size_in_bytes)
    new = 0 if told is None else max(0, int(told.output_size_in_bytes) - int(told.alias_size_in_bytes))
    return Program(role, name, tuple(device.id for device in devices), temporary, new)


def devices_of(
    roles: Mapping[str, Mapping[str, Any]], programs: Iterable[Program], devices: Iterable[jax.Device], before: Iterable[Place]
) -> list[Device]:
    """What lies on each device at this moment.

    Args:
        roles: arrays by role and what they are, as pytrees.
        programs: that run.
        devices: that are looked at.
        before: places of arrays that have nothing to do with it.
    """
    alive, programs = places_of(jax.live_arrays()), list(programs)
    known = set(before)
    held: dict[int, dict[str, int]] = {device.id: {} for device in devices}
    for role, arrays in roles.items():
        for what, tree in arrays.items():
            for place, num_bytes in places_of(jax.tree.leaves(tree)).items():
                number = place[0]
                if number in held:
                    name = f"{role}: {what}"
                    held[number][name] = held[number].get(name, 0) + (0 if place in known else num_bytes)
                known.add(place)
    return [
        _device(device, held[device.id], sum(b for place, b in alive.items() if place[0] == device.id and place not in known),
                [each for each in programs if device.id in each.devices])
        for device in devices
    ]  # fmt: skip


def _device(device: jax.Device, held: Mapping[str, int], unknown: int, programs: list[Program]) -> Device:
    largest = max(programs, key=lambda each: each.temporary_bytes + each.new_bytes, default=None)
    name = None if largest is None else f"{largest.role}: {largest.name}"
    takes = 0 if largest is None else largest.temporary_bytes + largest.new_bytes
    return Device(device.id, held, unknown, name, takes, device_peak_bytes([device]))
