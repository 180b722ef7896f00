"""Devices are looked at in a process of its own: one that hangs, dies or answers, and the real one."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from graphs.doctor.devices import find_devices, present
from graphs.doctor.finding import Finding
from graphs.doctor.probe import MARK

FOUND = {"backend": "cpu", "processes": 1, "import_s": 1.0, "start_s": 0.1, "compile_s": 0.2, "run_s": 1e-4}


def says(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def answers(devices: int, environment: dict[str, str], **changes: Any) -> list[Finding]:
    found = FOUND | {"devices": [{"kind": "cpu", "memory_bytes": None}] * devices} | changes
    return find_devices(30, environment, says(f"print('a driver talks'); print({MARK + json.dumps(found)!r})"))


def test_a_device_that_never_answers_is_a_fault_within_the_deadline() -> None:
    began = time.monotonic()
    code = "import sys, time; sys.stderr.write('waiting for chip 3\\n'); sys.stderr.flush(); time.sleep(60)"
    (fault,) = find_devices(1.0, dict(os.environ), says(code))
    assert time.monotonic() - began < 10
    assert fault.level == "fault"
    assert "within 1 s, got silence; its last words: waiting for chip 3" in fault.found
    assert "JAX_PLATFORMS=cpu" in fault.remedy


def test_a_backend_that_cannot_start_is_a_fault_with_its_last_words_and_the_extra_it_wants() -> None:
    code = "import sys; sys.exit('RuntimeError: no cuda here')"
    (fault,) = find_devices(30, {**os.environ, "JAX_PLATFORMS": "cuda"}, says(code))
    assert (fault.level, fault.values["status"]) == ("fault", 1)
    assert "RuntimeError: no cuda here" in fault.found
    assert fault.remedy == "unset JAX_PLATFORMS, which asks for cuda, or install what it needs: pip install 'headrace[cuda12]'"
    assert fault.found.startswith("expected JAX to start on cuda, got status 1")
    (killed,) = find_devices(30, {}, says("import os; os.abort()"))
    assert "signal 6" in killed.found


def test_a_flag_that_nobody_knows_is_told_with_its_variable() -> None:
    (fault,) = find_devices(30, {}, says("import sys; sys.exit('F1 Unknown flag in XLA_FLAGS: --xla_no_such_flag=1')"))
    assert "--xla_no_such_flag=1" in fault.found
    assert fault.remedy == "take what it names out of XLA_FLAGS"


def test_too_few_threads_for_virtual_devices_are_warned_of() -> None:
    assert [finding.what for finding in answers(8, {"NPROC": "16"})] == ["devices", "jax"]
    warning = answers(8, {"NPROC": "8"})[-1]
    assert (warning.level, warning.remedy) == ("warning", "export NPROC=16")
    assert [finding.what for finding in answers(8, {"NPROC": "8"}, backend="tpu")] == ["devices", "jax"]


def test_an_accelerator_is_known_by_its_device_files(tmp_path: Path) -> None:
    assert present(tmp_path) is None
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").touch()
    assert present(tmp_path) == "cuda12"
    card = tmp_path / "sys" / "bus" / "pci" / "devices" / "0000:00:05.0"
    card.mkdir(parents=True)
    (card / "vendor").write_text("0x1ae0\n")
    (card / "device").write_text("0x0042\n")  # a network card of the same maker
    assert present(tmp_path) == "cuda12"
    (card / "device").write_text("0x0063\n")
    assert present(tmp_path) == "tpu"


@pytest.mark.slow
def test_the_devices_of_this_machine_compute() -> None:
    devices, timing = find_devices(60)
    assert (devices.level, len(devices.values["devices"])) == ("ok", 2)
    assert "compiled in" in timing.found
