"""Programs in a sandbox: what they get, what they cannot do, and that nothing of them is left."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from stages.tools.sandbox import Sandbox, SandboxConfig, isolated, not_isolated
from stages.tools.scratch import MARK, kill_marked, new_folder, reap, remove

ROOT = Path(__file__).parents[3]
LEAVING = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
"""
"""A program that leaves a process behind, in a session of its own, and ends."""


def marked(name):
    """Processes of a sandbox, as the kernel lists them."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"{MARK}={name}".encode() in entry.read_bytes():
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return found


def gone(name, within_s=5.0):
    """Whether the processes of a sandbox end soon: the kernel needs a moment for what it kills."""
    until = time.monotonic() + within_s
    while marked(name):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def children_and_descriptors():
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return set(listed), set(os.listdir("/proc/self/fd"))


async def python(sandbox, code):
    return await sandbox.run([sys.executable, "-I", "-S", "-c", code])


@pytest.fixture(scope="module")
def finished():
    """What programs of one sandbox came to, which ran side by side."""
    before = children_and_descriptors()
    listening = socket.create_server(("127.0.0.1", 0))
    outside = ROOT / "written-from-a-sandbox"
    programs = {
        "prints": "import sys; print('out', flush=True); print('err', file=sys.stderr, flush=True); print('out again')",
        "fails": "import sys; sys.exit(3)",
        "dies": "import os; os.abort()",
        "environment": "import os; print(sorted(os.environ)); print(os.getcwd()); print(os.environ['HOME'])",
        "input": "print(input())",
        "memory": "x = bytearray(10**9)",
        "file": "f = open('big', 'wb', 0); f.write(bytes(2**20)); f.write(b'1')",
        "prints a lot": "for i in range(100_000): print(i)",
        "writes": f"open({str(outside)!r}, 'w')",
        "calls out": f"import socket; socket.create_connection(('127.0.0.1', {listening.getsockname()[1]}), 1)",
        "looks around": "import os; print(len([p for p in os.listdir('/proc') if p.isdigit()])); print(os.listdir('..'))",
        "reads its starter": "import os; print(open(f'/proc/{os.getppid()}/environ').read())",
        "leaves": LEAVING,
    }

    async def run():
        async with Sandbox(SandboxConfig(file_bytes=2**20, output_bytes=1000)) as sandbox, Sandbox():
            ended = await asyncio.gather(*(python(sandbox, code) for code in programs.values()))
            left = marked(sandbox.folder.name)
        return dict(zip(programs, ended, strict=True)), left, sandbox.folder

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEARCH_API_KEY", "s3cr3t")
        ended, left, folder = asyncio.run(run())
    listening.close()
    found = outside.exists()
    outside.unlink(missing_ok=True)
    return {
        **ended, "left": left, "folder": folder, "before": before, "after": children_and_descriptors(), "found": found,
    }  # fmt: skip


def test_output_comes_in_order_with_the_exit_status(finished):
    assert finished["prints"].output == "out\nerr\nout again\n"
    assert finished["prints"].status == 0
    assert finished["fails"].status == 3
    assert finished["dies"].status == 128 + signal.SIGABRT


def test_a_program_has_no_input_and_none_of_our_variables(finished):
    variables, folder, home = finished["environment"].output.splitlines()
    assert set(eval(variables)) == {"PATH", "HOME", "TMPDIR", "LANG", MARK, "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"}
    assert (folder, home) == ("~", "~")
    assert "EOFError" in finished["input"].output


def test_memory_and_files_are_limited(finished):
    assert "MemoryError" in finished["memory"].output
    assert "File too large" in finished["file"].output


def test_output_is_bounded_while_it_is_read_and_its_ends_are_kept(finished):
    output = finished["prints a lot"].output
    size = sum(len(f"{i}\n") for i in range(100_000))
    assert output.startswith("0\n1\n2\n")
    assert output.endswith("99998\n99999\n")
    assert f"\n[cut: {size - 1000} bytes]\n" in output
    assert len(output) == 1000 + len(f"\n[cut: {size - 1000} bytes]\n")


def test_what_is_kept_apart_is_kept_apart_and_what_is_not_is_said(finished):
    refused = {
        "network": "Network is unreachable" in finished["calls out"].output,
        "processes": finished["looks around"].output.startswith("2\n"),
        "writes": "Read-only file system" in finished["writes"].output and not finished["found"],
    }
    assert {name for name, kept in refused.items() if kept} == isolated()
    assert set(not_isolated()) == {"network", "processes", "writes", "reads", "totals", "kernel"} - isolated()


@pytest.mark.skipif("processes" not in isolated(), reason="this machine grants no namespaces")
def test_another_sandbox_and_what_started_it_are_out_of_sight(finished):
    assert finished["looks around"].output.splitlines()[1] == f"['{finished['folder'].name}']"
    assert "Permission denied" in finished["reads its starter"].output


def test_nothing_is_left_of_a_program_that_ended_nor_of_a_sandbox_that_closed(finished):
    """S28, S29: no process, no descriptor, no file."""
    assert finished["left"] == []
    assert finished["before"] == finished["after"]
    assert not finished["folder"].exists()


def test_a_cancelled_program_is_killed_with_its_children_wherever_the_cancellation_comes():
    """S28, S29: at many moments of its start and its life."""

    async def run():
        async with Sandbox() as sandbox:
            for delay_s in (0, 0.002, 0.01, 0.05, 0.15):
                task = asyncio.create_task(python(sandbox, LEAVING + "time.sleep(600)"))
                await asyncio.sleep(delay_s)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert marked(sandbox.folder.name) == []
        return sandbox.folder

    assert not asyncio.run(run()).exists()


@pytest.mark.slow
def test_a_program_that_computes_for_too_long_is_killed():
    async def run():
        async with Sandbox(SandboxConfig(cpu_s=1)) as sandbox:
            return await python(sandbox, "while True: pass")

    assert asyncio.run(run()).status in (128 + signal.SIGKILL, 128 + signal.SIGXCPU)


@pytest.mark.slow
def test_a_program_that_prints_without_end_does_not_keep_the_loop_busy():
    async def run():
        async with Sandbox() as sandbox:
            task = asyncio.create_task(python(sandbox, "while True: print('x' * 10_000)"))
            used = time.thread_time()
            for _ in range(100):
                await asyncio.sleep(0.005)
            used = time.thread_time() - used
            task.cancel()
            await asyncio.wait([task])
        return used

    # Of half a second, in which a pipe that is read as fast as it fills takes all.
    assert asyncio.run(run()) < 0.25


OWNER = """
import asyncio, sys
from stages.tools.sandbox import Sandbox

async def main():
    async with Sandbox() as sandbox:
        print(sandbox.folder, flush=True)
        await sandbox.run([sys.executable, "-I", "-S", "-c", sys.argv[1]])

asyncio.run(main())
"""


def killed_owner(*prefix):
    """Folder of a sandbox whose owner was killed while a program and one it left behind were running."""
    code = LEAVING + "open('up', 'w'); time.sleep(600)"
    command = [*prefix, sys.executable, "-c", OWNER, code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True) as owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        until = time.monotonic() + 10
        while not (folder / "up").exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        assert len(marked(folder.name)) >= 2
        owner.kill()
    return folder


@pytest.mark.slow
def test_programs_die_with_a_killed_run_and_the_next_one_removes_their_folder():
    """S28."""
    folder = killed_owner()
    assert gone(folder.name)
    assert folder.exists()
    reap(folder.parent)
    assert not folder.exists()


NO_NAMESPACES = (
    "unshare",
    "--user",
    "--map-root-user",
    "sh",
    "-c",
    'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"',
    "sh",
)
CHECKS = """
import asyncio, sys
sys.path.insert(0, "tests/stages/tools")
import test_sandbox as tests
from stages.tools.sandbox import isolated
assert isolated() == frozenset(), isolated()
tests.test_a_cancelled_program_is_killed_with_its_children_wherever_the_cancellation_comes()

async def main():
    async with tests.Sandbox() as sandbox:
        assert (await tests.python(sandbox, tests.LEAVING)).status == 0
        assert tests.marked(sandbox.folder.name) == []
asyncio.run(main())
print("passed")
"""


@pytest.mark.slow
@pytest.mark.skipif("processes" not in isolated(), reason="this machine grants no namespaces, so the other tests show the same")
def test_nothing_is_left_either_where_the_machine_grants_no_namespaces():
    """S28, S29: namespaces are switched off inside of one, so it is the kernel that refuses them."""
    done = subprocess.run([*NO_NAMESPACES, sys.executable, "-c", CHECKS], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "passed\n", done.stderr
    folder = killed_owner(*NO_NAMESPACES)
    assert gone(folder.name)
    reap(folder.parent)
    assert not folder.exists()


def test_what_a_dead_run_has_left_is_found_by_the_name_of_its_folder(tmp_path):
    """S30: a later sweep ends it; a folder of a run that lives is left alone."""
    ended = subprocess.Popen([sys.executable, "-S", "-c", ""])
    ended.wait()
    ours = new_folder()
    dead, living = tmp_path / f"{ended.pid}-1-abc", tmp_path / ours.name
    for folder in (dead, living, tmp_path / "of somebody else"):
        folder.mkdir()
    left = subprocess.Popen(["sleep", "600"], env={MARK: dead.name}, start_new_session=True)
    reap(tmp_path)
    assert left.wait(timeout=5) == -signal.SIGKILL
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([living.name, "of somebody else"])
    remove(ours)


def test_processes_that_are_killed_are_those_of_one_sandbox():
    two = [subprocess.Popen(["sleep", "600"], env={MARK: name}) for name in ("1-1-a", "1-1-ab")]
    kill_marked("1-1-a")
    assert two[0].wait(timeout=5) == -signal.SIGKILL
    assert two[1].poll() is None
    two[1].kill()
    two[1].wait()


def test_a_folder_is_removed_however_deep_and_locked_it_is(tmp_path):
    """Deeper than Python's recursion goes, and without permission to look into it. In memory, since disks are slow at it."""
    memory = Path("/dev/shm")
    top = Path(tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else tmp_path))
    here = os.getcwd()
    os.chdir(top)
    try:
        for _ in range(1100):
            os.mkdir("d")
            os.chdir("d")
    finally:
        os.chdir(here)
    (top / "locked").mkdir()
    (top / "locked" / "file").touch()
    (top / "locked").chmod(0)
    remove(top)
    assert not top.exists()
