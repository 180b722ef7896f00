"""What a trace costs: a slice against two readings of the clock, a packet on the writer's thread, and a flood of events.

The target of the ratio: recording a slice (begin and end, with their times) takes at most 5 times two readings of the clock
and an append, which is the least a recorder could do.
"""

import json
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from flow.trace import PerfettoWriter, read_trace

SLICES = 2_000
REPEATS = 31
FLOOD = 1_000_000


def main() -> None:
    """Prints the measurements as one line of JSON."""
    with tempfile.TemporaryDirectory() as folder:
        least_ns, slice_ns, encode_ns, packet_bytes = time_slices(Path(folder) / "slices")
        flood = time_flood(Path(folder) / "flood")
    ratio = statistics.median(ours / least for ours, least in zip(slice_ns, least_ns, strict=True))
    detail = {
        "least_ns": summary(least_ns),
        "slice_ns": summary(slice_ns),
        "encode_ns_per_event": summary(encode_ns),
        "bytes_per_event": packet_bytes,
        "flood": flood,
    }
    print(json.dumps({"bench": "trace_cost", "ratios": {"slice": ratio}, "targets": {"slice": 5.0}, "detail": detail}))


def append_only(num: int) -> None:
    """Two readings and an append a slice."""
    kept, clock = [], time.monotonic_ns
    for _ in range(num):
        kept.append((clock(), clock()))


def time_slices(path: Path) -> tuple[list[float], list[float], list[float], float]:
    """Nanoseconds per slice at the least and for who records, per event for who writes, and bytes per event."""
    least, recording, encoding = [], [], []
    with PerfettoWriter(path) as writer:
        track, clock = writer.track("track"), time.monotonic_ns

        def record(num: int) -> None:
            for _ in range(num):
                writer.begin(track, "work", clock())
                writer.end(track, clock())

        for _ in range(REPEATS):
            least.append(time_each_ns(append_only, SLICES))
            recording.append(time_each_ns(record, SLICES))
            encoding.append(time_each_ns(lambda _: writer.flush(), 2 * SLICES))
    return least, recording, encoding, path.stat().st_size / (2 * SLICES * REPEATS)


def time_flood(path: Path) -> dict[str, float]:
    """A million events as fast as one thread can make them: time, memory gained, and the share that was written."""
    before_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start_ns = time.perf_counter_ns()
    with PerfettoWriter(path) as writer:
        track = writer.track("track")
        for n in range(FLOOD // 2):
            writer.begin(track, "work", 2 * n, {"item": n}, (n,))
            writer.end(track, 2 * n + 1)
        recorded_s = (time.perf_counter_ns() - start_ns) / 1e9
        dropped = writer.num_dropped
    closed_s = (time.perf_counter_ns() - start_ns) / 1e9
    gained_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before_mb
    assert len(read_trace(path).slices) + dropped == FLOOD // 2
    return {
        "recorded_s": recorded_s,
        "closed_s": closed_s,
        "gained_mb": gained_mb,
        "written_share": 1 - dropped / (FLOOD // 2),
        "file_mb": path.stat().st_size / 1e6,
    }


def time_each_ns(work: Callable[[int], None], num: int) -> float:
    """Nanoseconds of one of ``num``."""
    start_ns = time.perf_counter_ns()
    work(num)
    return (time.perf_counter_ns() - start_ns) / num


def summary(values: list[float]) -> dict[str, float]:
    """Median and spread."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


if __name__ == "__main__":
    main()
