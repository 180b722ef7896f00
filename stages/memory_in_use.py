"""Memory in use now, of the devices and of this process, as far as the platform tells. Sizes that are planned are elsewhere."""

import os
from collections.abc import Iterable
from pathlib import Path

import jax

_STATM = Path("/proc/self/statm")


def device_bytes(devices: Iterable[jax.Device]) -> int | None:
    """Bytes in use on the fullest of some devices; ``None`` where the backend does not tell, as on CPU."""
    return max((told for device in devices if (told := _told(device, "bytes_in_use")) is not None), default=None)


def device_peak_bytes(devices: Iterable[jax.Device]) -> int | None:
    """Most bytes that were ever in use at once on one of some devices; ``None`` where the backend does not tell."""
    return max((told for device in devices if (told := _told(device, "peak_bytes_in_use")) is not None), default=None)


def host_bytes() -> int | None:
    """Bytes of this process that are in the machine's memory now; ``None`` where the system does not tell."""
    if not _STATM.exists():
        return None
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _told(device: jax.Device, name: str) -> int | None:
    found = (device.memory_stats() or {}).get(name)
    return None if found is None else int(found)
