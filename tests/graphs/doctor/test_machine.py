"""What a machine has is read from files of a made-up one, or bounded here."""

import re
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from graphs.doctor.machine import (
    find_clock,
    find_cores,
    find_machine,
    find_memory,
    find_open_files,
    find_spawning,
    find_variables,
)


@pytest.fixture
def machine(tmp_path: Path) -> Callable[[dict[str, str]], Path]:
    def make(files: dict[str, str]) -> Path:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return tmp_path

    return make


def meminfo(total: int, free: int) -> dict[str, str]:
    return {"proc/meminfo": f"MemTotal:  {total} kB\nMemFree: 1 kB\nMemAvailable: {free} kB\nHugePages_Total: 0\n"}


@pytest.mark.parametrize(("free_mib", "level"), [(8192, "ok"), (1024, "warning"), (256, "fault")])
def test_memory_is_what_is_available(machine: Callable[..., Path], free_mib: int, level: str) -> None:
    found = find_memory(machine(meminfo(16 * 2**20, free_mib * 1024)))
    assert (found.level, found.values["free_bytes"]) == (level, free_mib * 2**20)


def test_the_bound_of_a_container_counts(machine: Callable[..., Path]) -> None:
    root = machine({**meminfo(64 * 2**20, 60 * 2**20), "sys/fs/cgroup/memory.max": f"{4 * 2**30}\n",
                    "sys/fs/cgroup/memory.current": f"{2**30}\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"})  # fmt: skip
    assert find_memory(root).values == {"total_bytes": 4 * 2**30, "free_bytes": 3 * 2**30}
    cores = find_cores(root)
    assert (cores.level, cores.values["cores"]) == ("warning", 1.5)
    root = machine({"sys/fs/cgroup/memory.max": "max\n"})
    assert find_memory(root).values["total_bytes"] == 64 * 2**30


def test_few_open_files_are_told_with_the_command() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
        found = find_open_files()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found.level == "warning"
    assert re.fullmatch(r"ulimit -n \d+|have the hard limit raised: .*", found.remedy)


def test_a_clock_before_the_files_of_headrace_is_told() -> None:
    assert find_clock().level == "ok"
    assert "days before them" in find_clock(now=0.0).found


def test_a_process_that_does_not_answer_is_a_fault() -> None:
    assert find_spawning().level == "ok"
    assert "without a word" in find_spawning(python="/bin/false").found
    assert "No such file" in find_spawning(python="/nowhere/python").found


def test_variables_of_runs_are_told_and_secrets_are_not() -> None:
    environment = {"XLA_FLAGS": "--x=1", "HF_TOKEN": "hf_abc", "WANDB_API_KEY": "k3y", "JAX_DISABLE_JIT": "1", "EDITOR": "vi"}
    warning, listed = find_variables(environment)
    assert (warning.what, warning.level, warning.remedy) == ("JAX_DISABLE_JIT", "warning", "unset JAX_DISABLE_JIT")
    assert listed.values == {"XLA_FLAGS": "--x=1", "HF_TOKEN": "(set)", "WANDB_API_KEY": "(set)", "JAX_DISABLE_JIT": "1"}
    assert "hf_abc" not in listed.found


def test_all_of_this_machine_is_looked_at() -> None:
    assert {finding.what for finding in find_machine({})} == {
        "memory", "cores", "open files", "clock", "processes", "variables", "terminal"
    }  # fmt: skip
    assert sys.platform != "linux" or find_memory().values["total_bytes"] > 2**28
