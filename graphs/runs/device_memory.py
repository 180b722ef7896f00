"""Counters of the devices' memory in the trace of a run, where the backend tells it; a CPU does not."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator

import jax

from flow.trace import Recorder
from stages.memory_in_use import device_bytes

_EVERY_S = 1.0


@contextlib.asynccontextmanager
async def counted_memory(recorder: Recorder) -> AsyncGenerator[None]:
    """Count the memory in use on each device of this process, ``device N memory`` in MB, once a second."""
    devices = [device for device in jax.local_devices() if device_bytes([device]) is not None]
    counters = {device: recorder.counter(f"device {device.id} memory", "MB") for device in devices}

    async def count() -> None:
        while True:
            for device, counter in counters.items():
                recorder.count(counter, (device_bytes([device]) or 0) / 1e6, time.monotonic_ns())
            await asyncio.sleep(_EVERY_S)

    task = asyncio.get_running_loop().create_task(count()) if devices else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
