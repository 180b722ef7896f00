"""Processors that this process could have: those it may use, less what other programs of the machine keep busy."""

import os
import time
from pathlib import Path
from typing import NamedTuple

from graphs.doctor.machine import find_cores

_STAT = Path("/proc/stat")


class Moment(NamedTuple):
    """One, on the event loop.

    Attributes:
        at_ns: of the trace.
        loop_s: processor time of the calling thread up to then.
        processor_s: of all threads of this process.
        machine_s: of all programs of the machine; ``None`` where it does not tell.
    """

    at_ns: int
    loop_s: float
    processor_s: float
    machine_s: float | None

    @staticmethod
    def now() -> "Moment":
        """This one."""
        return Moment(time.monotonic_ns(), time.thread_time(), time.process_time(), machine_seconds())


def machine_seconds(stat: Path = _STAT) -> float | None:
    """Processor time of all programs since the machine began, in seconds; ``None`` where it does not tell.

    Args:
        stat: the kernel's account: user, nice, system, idle, iowait, irq, softirq, steal, in ticks.
    """
    try:
        ticks = [int(each) for each in stat.read_text().partition("\n")[0].split()[1:9]]
    except (OSError, ValueError):
        return None
    return (sum(ticks) - sum(ticks[3:5])) / os.sysconf("SC_CLK_TCK")


def processors_left(began: Moment, ended: Moment) -> float:
    """Processors that were there for this process between two moments, at least a tenth of one."""
    cores, there = float(find_cores().values["cores"]), float(os.cpu_count() or 1)
    if began.machine_s is None or ended.machine_s is None:
        return cores
    own_s, all_s = ended.processor_s - began.processor_s, ended.machine_s - began.machine_s
    others = max(0.0, all_s - own_s) / ((ended.at_ns - began.at_ns) / 1e9)
    return max(0.1, min(cores, there - others))
