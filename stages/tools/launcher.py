"""Runs one program apart from the rest of the machine, and dies with everything it started. A script, not a module to import.

``sandbox.py`` starts it with a JSON object of settings as its only argument, or with ``probe`` to be told what this machine
can keep apart. ``mcp_session.py`` has it isolate nothing and only see to the end. It needs nothing but the standard library,
since it runs without the packages of its parent.

Where the kernel grants namespaces to anybody, the program has a network without a way out, sees no other process, cannot write
outside of its folder, and an init process of its own, at whose death the kernel kills all others. Elsewhere this process adopts
whatever loses its parent, and kills it in the end. The parent's death reaches it as a signal.

Source: unshare(2), user_namespaces(7), pid_namespaces(7), mount_setattr(2), prctl(2).
"""

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
from typing import Any, NoReturn

_LIBC = ctypes.CDLL(None, use_errno=True)
_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER, _SET_NO_NEW_PRIVILEGES = 1, 36, 38
_NEW_MOUNTS, _NEW_IPC, _NEW_USER, _NEW_PROCESSES, _NEW_NETWORK = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_BIND, _RECURSIVE, _PRIVATE, _NO_SUID_DEV_EXEC = 0x1000, 0x4000, 0x40000, 0xE
_MOUNT_SETATTR, _HERE, _AT_RECURSIVE, _READ_ONLY = 442, -100, 0x8000, 1
_INNER_ID = 1000
"""User inside: anybody but 0, so that it loses its powers over the namespaces once the program starts."""


def main(argument: str) -> NoReturn:
    """Run what the settings say, or tell what can be kept apart."""
    if argument == "probe":
        apart = _apart()
        if "processes" in apart and (child := os.fork()):
            os.waitpid(child, 0)
            os._exit(0)
        if "writes" in apart and not _closed_to_writes(os.getcwd(), os.getcwd()):
            apart.remove("writes")
        print(json.dumps(sorted(apart)), flush=True)  # noqa: T201 - the answer
        os._exit(0)
    settings = json.loads(argument)
    _die_with_parent(signal.SIGTERM, settings["parent"])
    children = _children_file()
    signal.signal(signal.SIGTERM, lambda *_: _end(128 + signal.SIGTERM, children))
    _prctl(_SET_CHILD_SUBREAPER, 1)
    apart = _apart() if settings["isolate"] else set[str]()
    child = os.fork()
    if child == 0:
        _run_apart(settings, apart)
    _end(_status_of(child), children)


def _run_apart(settings: dict[str, Any], apart: set[str]) -> NoReturn:
    """Become the init process of the namespaces, where there are some, with the program as its child."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if "writes" in apart:
        _closed_to_writes(settings["scratch"], settings["root"])
    if "processes" in apart and (child := os.fork()):
        os._exit(_status_of(child))
    if "limits" in settings:
        _limit(settings["limits"])
        _prctl(_SET_NO_NEW_PRIVILEGES, 1)
        os.chdir(settings["scratch"])
    os.execvp(settings["command"][0], settings["command"])


def _apart() -> set[str]:
    """Leave as many namespaces as the kernel lets us; names of what is kept apart from now on."""
    user, group = os.getuid(), os.getgid()
    for flags, apart in (
        (_NEW_USER | _NEW_NETWORK | _NEW_IPC | _NEW_PROCESSES | _NEW_MOUNTS, {"network", "processes", "writes"}),
        (_NEW_USER | _NEW_NETWORK, {"network"}),
    ):
        if sys.platform == "linux" and _LIBC.unshare(flags) == 0:
            _write("/proc/self/setgroups", "deny")
            _write("/proc/self/uid_map", f"{_INNER_ID} {user} 1")
            _write("/proc/self/gid_map", f"{_INNER_ID} {group} 1")
            return apart
    return set()


def _closed_to_writes(scratch: str, root: str) -> bool:
    """Everything but the scratch folder for reading only, the other folders beside it out of sight. Whether that worked."""
    _mount("none", "/", None, _RECURSIVE | _PRIVATE)
    kept = os.open(scratch, os.O_PATH | os.O_DIRECTORY)
    done = _mount("none", root, "tmpfs", 0) if root != scratch else True
    os.makedirs(scratch, exist_ok=True)
    done = done and _mount(f"/proc/self/fd/{kept}", scratch, None, _BIND)
    os.close(kept)
    done = done and _set_read_only("/", _AT_RECURSIVE, True) and _set_read_only(scratch, 0, False)
    # Refused where a container hides parts of its own; then the outer one stays, which shows more but gives no more away.
    _mount("proc", "/proc", "proc", _NO_SUID_DEV_EXEC)
    return done


def _set_read_only(path: str, flags: int, on: bool) -> bool:
    attributes = (ctypes.c_uint64 * 4)(_READ_ONLY if on else 0, 0 if on else _READ_ONLY, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    return _LIBC.syscall(_MOUNT_SETATTR, _HERE, path.encode(), flags, ctypes.byref(attributes), size) == 0


def _mount(source: str, target: str, kind: str | None, flags: int) -> bool:
    return _LIBC.mount(source.encode(), target.encode(), kind and kind.encode(), ctypes.c_ulong(flags), None) == 0


def _limit(limits: dict[str, int]) -> None:
    for name, most in limits.items():
        # More than the machine's own limit cannot be had, and then that one holds.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(getattr(resource, name), (most, most))


def _die_with_parent(sent: int, parent: int) -> None:
    _prctl(_SET_PARENT_DEATH_SIGNAL, sent)
    if os.getppid() != parent:  # it died before we asked to be told
        os._exit(1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        _LIBC.prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def _status_of(child: int) -> int:
    """Wait for a child, and for others that lost their parent meanwhile; its status as a shell tells it."""
    while True:
        ended, status = os.wait()
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _end(status: int, listing: int | None) -> NoReturn:
    """Kill what is left of what was started, children of children too, which become ours when their parent dies."""
    while children := _children(listing):
        for child in children:
            os.kill(child, signal.SIGKILL)
        for child in children:
            os.waitpid(child, 0)
    os._exit(status)


def _children_file() -> int | None:
    """Where the kernel lists our children. Opened while /proc is still that of this process."""
    try:
        return os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY)
    except OSError:
        return None


def _children(listing: int | None) -> list[int]:
    """Ours, dead ones included; none where the machine does not tell, which leaves them to who started us."""
    return [] if listing is None else [int(child) for child in os.pread(listing, 1 << 16, 0).split()]


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


if __name__ == "__main__":
    main(sys.argv[1])
