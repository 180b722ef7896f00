"""Memory of devices: of those that tell it, and of none that does not; fakes stand for devices that a CPU is not."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import jax

from flow.testing import run_virtual
from flow.trace import PerfettoWriter, read_trace
from graphs.runs.device_memory import counted_memory
from stages.memory_in_use import device_bytes, device_peak_bytes, host_bytes


@dataclass(eq=False)
class Telling:
    """A device that tells its memory, and takes a megabyte more each time it is asked."""

    id: int
    in_use: int = 0

    def memory_stats(self) -> dict[str, int]:
        self.in_use += 1_000_000
        return {"bytes_in_use": self.in_use, "peak_bytes_in_use": 2 * self.in_use}


def test_the_fullest_device_counts_and_one_that_does_not_tell_counts_for_nothing() -> None:
    cpu = jax.local_devices()[0]
    assert device_bytes([cpu]) is device_peak_bytes([cpu]) is device_bytes([]) is None
    assert device_bytes([cpu, Telling(0, 4_000_000), Telling(1)]) == 5_000_000
    assert device_peak_bytes([Telling(0), cpu, Telling(1, 2_000_000)]) == 6_000_000


def test_memory_of_the_process_grows_by_what_it_takes() -> None:
    before = host_bytes()
    taken = bytearray(b"1" * 60_000_000)
    assert 50_000_000 < host_bytes() - before < 200_000_000
    del taken


def test_each_device_that_tells_has_a_counter_of_what_it_tells_once_a_second(tmp_path: Path) -> None:
    async def while_running(recorder: PerfettoWriter) -> None:
        async with counted_memory(recorder, [Telling(3), jax.local_devices()[0], Telling(5)]):
            await asyncio.sleep(2.5)

    with PerfettoWriter(tmp_path / "run.pftrace") as recorder:
        run_virtual(while_running(recorder))
    trace = read_trace(tmp_path)
    counters = {track.name: number for number, track in trace.tracks.items() if track.kind == "counter"}
    assert set(counters) == {"device 3 memory", "device 5 memory"}
    for number in counters.values():
        assert [(each.at_ns // 1_000_000_000, each.value) for each in trace.counts if each.track == number] == [
            (0, 2.0), (1, 3.0), (2, 4.0),
        ]  # fmt: skip
