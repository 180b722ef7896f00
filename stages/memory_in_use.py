"""Memory of devices that is in use, as far as the backend tells. What a program will take is planned elsewhere."""

from collections.abc import Iterable

import jax


def device_bytes(devices: Iterable[jax.Device]) -> int | None:
    """Bytes in use on the fullest of some devices; ``None`` where the backend does not tell, as on CPU."""
    return max((told for device in devices if (told := _told(device, "bytes_in_use")) is not None), default=None)


def device_peak_bytes(devices: Iterable[jax.Device]) -> int | None:
    """Most bytes that were ever in use at once on one of some devices; ``None`` where the backend does not tell."""
    return max((told for device in devices if (told := _told(device, "peak_bytes_in_use")) is not None), default=None)


def _told(device: jax.Device, name: str) -> int | None:
    found = (device.memory_stats() or {}).get(name)
    return None if found is None else int(found)
