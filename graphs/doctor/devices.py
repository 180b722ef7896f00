"""The devices that JAX finds, looked at from outside: a dead accelerator hangs its process, and this one only waits so long."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphs.doctor.finding import Finding
from graphs.doctor.packages import install_extra
from graphs.doctor.probe import MARK

_START = "import sys; sys.path[:] = sys.argv[1:]; from graphs.doctor.probe import main; main()"
_TPUS = {"0x0027", "0x005e", "0x0056", "0x0062", "0x0063", "0x006f", "0x0076"}
"""PCI numbers of Google's TPUs, from v2 on, as JAX has them in ``hardware_utils``."""
_PARTING_S = 5.0
"""What a process that was killed gets to be gone; one that is stuck in a driver is left to the system."""


def find_devices(
    within_s: float, environment: Mapping[str, str] = os.environ, command: Sequence[str] | None = None
) -> list[Finding]:
    """What JAX has to compute with.

    Args:
        within_s: most seconds for it to start and to compute something on each device.
        environment: variables.
        command: looks, and writes a line as ``probe`` does; ``None`` for that.
    """
    # A run may be under way: what is looked at must not take the memory of its devices.
    variables = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_CPP_MIN_LOG_LEVEL": "2", **environment}
    command = command or [sys.executable, "-c", _START, *sys.path]
    code, out, err = _ended(command, variables, within_s)
    line = next((line for line in reversed(out.splitlines()) if line.startswith(MARK)), None)
    if code != 0 or line is None:
        return [_fault(code, err, within_s, environment)]
    found = json.loads(line.removeprefix(MARK))
    return [_devices(found, present(), environment), _timing(found), *_cpu_threads(found, environment)]


def present(root: Path = Path("/")) -> str | None:
    """The extra for the accelerator that this machine has, whatever JAX knows of it; ``None`` for none.

    Args:
        root: of the file system with ``dev`` and ``sys``.
    """
    for device in (root / "sys" / "bus" / "pci" / "devices").glob("*"):
        with contextlib.suppress(OSError):
            ids = [(device / name).read_text().strip() for name in ("vendor", "device")]
            if ids[0] == "0x1ae0" and ids[1] in _TPUS:
                return "tpu"
    return "cuda12" if any((root / "dev").glob("nvidia[0-9]*")) else None


def _ended(command: Sequence[str], environment: Mapping[str, str], within_s: float) -> tuple[int | None, str, str]:
    """Exit status, ``None`` for one that was not there in time, and what was written."""
    process = subprocess.Popen(
        command, env=dict(environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        errors="replace", start_new_session=True,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=within_s)
    except subprocess.TimeoutExpired as late:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_PARTING_S)
        return None, "", _decoded(late.stderr)
    return process.returncode, out, err


def _decoded(text: Any) -> str:
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text or ""


def _fault(code: int | None, err: str, within_s: float, environment: Mapping[str, str]) -> Finding:
    last = next((line.strip() for line in reversed(err.splitlines()) if line.strip()), "")[:300]
    asked = environment.get("JAX_PLATFORMS")
    values = {"status": code, "error": err[-4000:]}
    if code is None:
        found = f"expected JAX to start and to compute within {within_s:g} s, got silence" + (
            f"; its last words: {last}" * bool(last)
        )
        remedy = "another process may hold the device, or its driver hangs: end that, or go without: JAX_PLATFORMS=cpu"
        return Finding("devices", "fault", found, remedy, values)
    how = f"status {code}" if code >= 0 else f"signal {-code}"
    on = f" on {asked}" if asked else ""
    found = f"expected JAX to start{on}, got {how}: {last}"
    return Finding("devices", "fault", found, _remedy(last, asked), values)


def _remedy(last: str, asked: str | None) -> str:
    flags = next((name for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS") if name in last), None)
    if flags is not None:
        return f"take what it names out of {flags}"
    if asked:
        return f"unset JAX_PLATFORMS, which asks for {asked}, or install what it needs: {_installs(asked)}"
    return "see the line above; JAX_PLATFORMS=cpu goes without an accelerator"


def _installs(platforms: str) -> str:
    extras = {"cuda": "cuda12", "gpu": "cuda12", "tpu": "tpu"}
    return (
        " or ".join(dict.fromkeys(install_extra(extras[name]) for name in platforms.split(",") if name in extras)) or "jaxlib"
    )


def _devices(found: Mapping[str, Any], extra: str | None, environment: Mapping[str, str]) -> Finding:
    kinds = Counter((device["kind"], device["memory_bytes"]) for device in found["devices"])
    told = ", ".join(f"{number} x {kind}{_memory(size)}" for (kind, size), number in kinds.items())
    told = f"{found['backend']}: {told}"
    if found["backend"] == "cpu" and extra is not None:
        asked = environment.get("JAX_PLATFORMS")
        remedy = f"unset JAX_PLATFORMS, which is {asked}" if asked else install_extra(extra)
        return Finding("devices", "warning", f"expected JAX to use the accelerator of this machine, got {told}", remedy, found)
    return Finding("devices", "ok", told, values=found)


def _memory(size: int | None) -> str:
    return "" if size is None else f" of {size / 2**30:.1f} GiB"


def _timing(found: Mapping[str, Any]) -> Finding:
    told = (
        f"imported in {found['import_s']:.1f} s, devices after {found['start_s']:.1f} s; a product of 256 x 256 compiled in "
        f"{found['compile_s']:.2f} s, run in {found['run_s'] * 1e3:.2f} ms on the slowest device"
    )
    return Finding("jax", "ok", told)


def _cpu_threads(found: Mapping[str, Any], environment: Mapping[str, str]) -> list[Finding]:
    """Virtual devices of a CPU wait for each other on too few threads: a sharded loop hangs, see docs/tpu.md."""
    number = len(found["devices"])
    threads = environment.get("NPROC", "")
    enough = int(threads) if threads.isdigit() else os.cpu_count() or 1
    if found["backend"] != "cpu" or number <= 2 or enough >= 2 * number:
        return []
    told = f"expected threads for twice the {number} virtual devices, got {enough}: a training step may hang"
    return [Finding("cpu threads", "warning", told, f"export NPROC={2 * number}", {"threads": enough})]
