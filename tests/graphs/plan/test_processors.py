"""How many processors others leave, from the kernel's account and the process's own."""

import os

import pytest

from graphs.doctor.machine import find_cores
from graphs.plan.processors import Moment, machine_seconds, processors_left


def test_idle_and_waiting_are_no_work(tmp_path):
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 20 30 4000 500 6 7 8 90 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n")
    assert machine_seconds(stat) == pytest.approx((100 + 20 + 30 + 6 + 7 + 8) / os.sysconf("SC_CLK_TCK"))
    assert machine_seconds(tmp_path / "none") is None


def test_what_others_keep_busy_is_taken_off():
    cores, there = float(find_cores().values["cores"]), os.cpu_count() or 1

    def left(own_s: float, all_s: float | None) -> float:
        return processors_left(
            Moment(0, 0.0, 1.0, 5.0), Moment(2 * 10**9, 0.0, 1.0 + own_s, None if all_s is None else 5.0 + all_s)
        )

    assert left(1.0, 1.0) == cores
    assert left(1.0, None) == cores
    assert left(1.0, 1.0 + 2 * (there - 0.5)) == pytest.approx(0.5)
    assert left(0.0, 2.0 * there) == 0.1
