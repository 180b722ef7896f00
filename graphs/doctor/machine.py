"""Memory, cores, open files, clock, processes, variables and terminal of this machine, as this process sees them."""

import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from graphs.doctor.finding import Finding

GIB = 2**30
LEAST_MEMORY, LITTLE_MEMORY = GIB // 2, 2 * GIB
"""JAX, a model of some megabytes and a compilation take about half a GiB; below two the first real model is too much."""
FEW_FILES = 1024
"""Open files that every episode's tools and sockets share: some per episode under way."""
WITHIN_S = 30.0
"""Most seconds that a process of this Python may take to start."""
_READ_BY_RUNS = re.compile(
    r"(JAX|XLA|LIBTPU|TPU|NCCL|CUDA|HF|TRANSFORMERS|TOKENIZERS|HEADRACE|WANDB|OTEL)_\w+|NPROC|PYTHONPATH|PYTHONHASHSEED|"
    r"OMP_NUM_THREADS|XDG_CACHE_HOME|NO_COLOR"
)
_SECRET = re.compile(r"TOKEN|KEY|SECRET|PASSWORD|CREDENTIAL|HEADERS", re.IGNORECASE)
_SLOWING = {
    "JAX_DISABLE_JIT": "nothing is compiled, so that a run takes for ever",
    "JAX_DEBUG_NANS": "every result is looked at on the host",
    "JAX_ENABLE_X64": "what has no type of its own takes twice the memory",
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "what is compiled runs slowly",
}
"""Variables that make every run slow, and how."""


def find_machine(environment: Mapping[str, str] = os.environ) -> list[Finding]:
    """All there is to find here.

    Args:
        environment: variables.
    """
    return [find_memory(), find_cores(), find_open_files(), find_clock(), find_spawning(), *find_variables(environment),
            find_terminal()]  # fmt: skip


def find_memory(root: Path = Path("/")) -> Finding:
    """Memory of the host, or what a container may have of it.

    Args:
        root: of the file system with ``proc`` and ``sys``.
    """
    lines = _text(root / "proc" / "meminfo").splitlines()
    sizes = {name: int(size.split()[0]) * 1024 for name, _, size in (line.partition(":") for line in lines)}
    total = sizes.get("MemTotal", os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    free = sizes.get("MemAvailable", total)
    limit, used = (_number(root / "sys" / "fs" / "cgroup" / f"memory.{name}") for name in ("max", "current"))
    if limit is not None and limit < total:
        total, free = limit, min(free, limit - (used or 0))
    values = {"total_bytes": total, "free_bytes": free}
    told = f"{free / GIB:.1f} GiB free of {total / GIB:.1f}"
    if free < LITTLE_MEMORY:
        level = "fault" if free < LEAST_MEMORY else "warning"
        return Finding("memory", level, f"expected 2 GiB free at least, got {told}", "end what takes it", values)
    return Finding("memory", "ok", told, values=values)


def find_cores(root: Path = Path("/")) -> Finding:
    """Cores that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, _, period = _text(root / "sys" / "fs" / "cgroup" / "cpu.max").partition(" ")
    usable = min(float(cores), int(quota) / int(period)) if quota.isdigit() else float(cores)
    load = os.getloadavg()[0]
    values = {"cores": usable, "load": load}
    told = f"{usable:g} of {os.cpu_count()}, load {load:.1f}"
    if usable < 2:
        return Finding("cores", "warning", f"expected 2 at least, got {told}: engine, trainer and loop wait for each other",
                       "allow the process more", values)  # fmt: skip
    if load > 2 * usable:
        return Finding("cores", "warning", f"{told}: others work here, and a run will wait for them", "end what works", values)
    return Finding("cores", "ok", told, values=values)


def find_open_files() -> Finding:
    """How many files and sockets this process may have open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    values = {"soft": soft, "hard": hard}
    if soft != resource.RLIM_INFINITY and soft < FEW_FILES:
        found = f"expected a limit of {FEW_FILES} at least, got {soft}; an episode with tools takes several"
        most = 4096 if hard == resource.RLIM_INFINITY else min(4096, hard)
        remedy = (
            f"ulimit -n {most}" if most > soft else "have the hard limit raised: limits.conf, or LimitNOFILE of the service"
        )
        return Finding("open files", "fault" if soft < 128 else "warning", found, remedy, values)
    return Finding("open files", "ok", "any number" if soft == resource.RLIM_INFINITY else f"up to {soft}", values=values)


def find_clock(now: float | None = None) -> Finding:
    """Whether the wall clock can be right, and how fine the one is that spans are measured with.

    Args:
        now: seconds since 1970; ``None`` for the clock's.
    """
    now = time.time() if now is None else now
    newest = Path(__file__).stat().st_mtime
    fine = time.get_clock_info("monotonic").resolution
    values = {"unix_s": now, "monotonic_resolution_s": fine}
    if now < newest - 86_400:
        found = f"expected a clock later than headrace's own files, got one {(newest - now) / 86_400:.0f} days before them"
        return Finding("clock", "warning", f"{found}: names of runs and times of traces will be wrong", "set the clock", values)
    if fine > 1e-4:
        return Finding("clock", "warning", f"expected a clock that tells 0.1 ms, got {fine:g} s: spans will be coarse",
                       "use another time source of the system", values)  # fmt: skip
    stamp = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(now))
    return Finding("clock", "ok", f"{stamp}, spans to {fine * 1e9:.0f} ns", values=values)


def find_spawning(within_s: float = WITHIN_S, python: str = sys.executable) -> Finding:
    """Whether a process can be started and answers over a socket, as stages in processes of their own do.

    Args:
        within_s: most seconds for it.
        python: what is started.
    """
    began = time.monotonic()
    answer = "import socket, sys; socket.socket(fileno=int(sys.argv[1])).sendall(b'here')"
    ours, theirs = socket.socketpair()
    process = None
    try:
        ours.settimeout(within_s)
        command = [python, "-c", answer, str(theirs.fileno())]
        process = subprocess.Popen(command, pass_fds=(theirs.fileno(),), start_new_session=True, stderr=subprocess.DEVNULL)
        theirs.close()
        heard = ours.recv(4)
        problem = "" if heard == b"here" else "one that ended without a word"
    except OSError as error:
        problem = f"none: {error.strerror or f'silence for {within_s:g} s'}"
    finally:
        ours.close()
        theirs.close()
        if process is not None:
            process.kill()
            process.wait()
    took = time.monotonic() - began
    if problem:
        found = f"expected a process of this Python that answers, got {problem}"
        return Finding("processes", "fault", found, "look at limits of processes (ulimit -u) and at what guards the machine")
    return Finding("processes", "ok", f"started and heard in {took:.2f} s", values={"start_s": took})


def find_variables(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Variables that runs or their packages read. Those that look like secrets are told to be set, and no more."""
    read = {name: value for name, value in sorted(environment.items()) if _READ_BY_RUNS.fullmatch(name)}
    shown = {name: "(set)" if _SECRET.search(name) else value for name, value in read.items()}
    for name, why in _SLOWING.items():
        if read.get(name, "").lower() in ("1", "true", "yes", "on"):
            yield Finding(name, "warning", f"is set: {why}", f"unset {name}", {name: read[name]})
    lines = [f"{name}={value if len(value) <= 160 else value[:157] + '...'}" for name, value in shown.items()]
    yield Finding("variables", "ok", "\n".join(lines) or "none that a run reads", values=shown)


def find_terminal() -> Finding:
    """Whether the live view has one, and whether it can write what it draws."""
    size, encoding = shutil.get_terminal_size(), (sys.stdout.encoding or "ascii").lower()
    at_one = sys.stdout.isatty()
    values = {"terminal": at_one, "columns": size.columns, "rows": size.lines, "encoding": encoding}
    if encoding.replace("-", "") not in ("utf8", "utf8sig"):
        return Finding("terminal", "warning", f"expected UTF-8, got {encoding}: lines of the live view will be question marks",
                       "export PYTHONUTF8=1", values)  # fmt: skip
    told = f"{size.columns} x {size.lines}, {encoding}" if at_one else f"none here: plain lines, {encoding}"
    return Finding("terminal", "ok", told, values=values)


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdigit() else None
