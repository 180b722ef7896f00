"""Counters of the devices' memory in the trace of a run, where the backend tells it; a CPU does not."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence

import jax

from flow.trace import Recorder
from stages.memory_in_use import device_bytes

_EVERY_S = 1.0


@contextlib.asynccontextmanager
async def counted_memory(recorder: Recorder, devices: Sequence[jax.Device]) -> AsyncGenerator[None]:
    """Count the memory in use on each of some devices, ``device N memory`` in MB, once a second."""
    telling = [device for device in devices if device_bytes([device]) is not None]
    counters = {device: recorder.counter(f"device {device.id} memory", "MB") for device in telling}
    loop = asyncio.get_running_loop()

    async def count() -> None:
        while True:
            for device, counter in counters.items():
                recorder.count(counter, (device_bytes([device]) or 0) / 1e6, int(loop.time() * 1e9))
            await asyncio.sleep(_EVERY_S)

    task = loop.create_task(count()) if telling else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
