"""Devices that are declared rather than there: what ``headrace check --topology`` proves a program against.

As many virtual devices of the CPU take their place, so that meshes, shardings and the compiled gradient are those of as many
devices, and each has the memory that is declared. Nothing is computed. What the compiler of another backend makes of a program
is not known from here.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import jax

from graphs.memory import GIB, Budget

_NAMED = re.compile(r"([a-z0-9]+)-(\d+)")
_PLAIN = re.compile(r"(\d+)x(\d+(?:\.\d+)?)(?:gib)?")
MOST_DEVICES = 512
"""Virtual devices each take threads and memory of this machine."""


@dataclass(frozen=True)
class Chip:
    """A device of a kind.

    Attributes:
        memory_gib: that a program may use, as the compiler tells where a program is too large.
        machine: most of them in one machine.
        cores: what the number in the name of a slice counts in each of them.
    """

    memory_gib: float
    machine: int
    cores: int = 1


CHIPS = {"v4": Chip(30.75, 4, 2), "v5e": Chip(15.75, 8), "v5p": Chip(95.74, 4, 2), "v6e": Chip(31.25, 8)}
"""TPUs by the name of a slice: ``v5e-8`` has 8 chips; of v4 and v5p the number counts cores, two in a chip."""


@dataclass(frozen=True)
class Topology:
    """Devices that are declared.

    Attributes:
        name: as it was given.
        num_devices: how many.
        memory_gib: of each.
        machines: that they are in; ``None`` where nobody said.
    """

    name: str
    num_devices: int
    memory_gib: float
    machines: int | None = None

    @property
    def budget(self) -> Budget:
        """Memory of one of them."""
        return Budget(f"{self.name} (declared)", int(self.memory_gib * GIB))

    @property
    def warnings(self) -> list[str]:
        """What to say of it."""
        if self.machines is None or self.machines == 1:
            return []
        return [
            f"{self.name} is {self.machines} machines, and a run is one process: it reaches all devices only through a runtime "
            "with a single controller, which was not tried"
        ]


def declared(arguments: Sequence[str]) -> tuple[list[str], Topology | None]:
    """Take ``--topology NAME`` out of the arguments of a command, and make it this process's.

    Returns:
        The other arguments, and what was declared; ``None`` where nothing was.

    Raises:
        ValueError: it declares nothing that is known, or the process has other devices already.
    """
    at = next((at for at, argument in enumerate(arguments) if argument.partition("=")[0] == "--topology"), None)
    if at is None:
        return list(arguments), None
    _, equals, value = arguments[at].partition("=")
    stop = at + (1 if equals else 2)
    if not equals and stop > len(arguments):
        raise ValueError("expected a slice, got nothing, in --topology; --topology v5e-8, for example")
    topology = read_topology(value if equals else arguments[at + 1])
    declare(topology)
    return [*arguments[:at], *arguments[stop:]], topology


def read_topology(text: str) -> Topology:
    """What a name declares.

    Args:
        text: ``v5e-8``, or ``8x15.75`` for devices and GiB of each.

    Raises:
        ValueError: it declares nothing that is known.
    """
    name = text.lower()
    if found := _PLAIN.fullmatch(name):
        topology = Topology(text, int(found[1]), float(found[2]))
    elif (found := _NAMED.fullmatch(name)) and found[1] in CHIPS and not int(found[2]) % CHIPS[found[1]].cores:
        chip = CHIPS[found[1]]
        number = int(found[2]) // chip.cores
        topology = Topology(text, number, chip.memory_gib, -(-number // chip.machine))
    else:
        raise ValueError(
            f"expected a slice, one of {', '.join(f'{kind}-N' for kind in CHIPS)}, or DEVICESxGIB such as 8x15.75, got "
            f"'{text}', in --topology; of v4 and v5p N counts cores, two in a chip"
        )
    if not (1 <= topology.num_devices <= MOST_DEVICES and topology.memory_gib > 0):
        raise ValueError(
            f"expected 1 to {MOST_DEVICES} devices with memory, got {topology.num_devices} of {topology.memory_gib:g} GiB, in "
            "--topology; declare fewer"
        )
    return topology


def declare(topology: Topology) -> None:
    """Make JAX of this process have as many devices. Before anything of it has looked at devices.

    Raises:
        ValueError: it has looked, and found another number.
    """
    try:
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", topology.num_devices)
    except RuntimeError as error:
        if jax.device_count() != topology.num_devices:
            raise ValueError(
                f"expected a process that has not looked at its devices, got one with {jax.device_count()}, in --topology "
                f"{topology.name}; check it in a process of its own"
            ) from error
