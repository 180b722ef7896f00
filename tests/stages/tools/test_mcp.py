"""Tools of a real MCP server, which the tests start. Needs the package ``mcp``; skipped where it is absent."""

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

import flow
from flow import Context, Graph, Run
from flow.testing import Collected
from flow.trace import PerfettoWriter, read_trace
from stages.envs.tool_env import ToolEnv
from stages.records import Message, Task, ToolCall
from stages.tools import mcp
from stages.tools.credentials import Credentials, RevokedError, revocations_in, revoke
from stages.tools.mcp import McpTools
from stages.tools.mcp_session import HttpServer, StdioServer
from stages.tools.tool import BrokenToolError, ToolAnswer

SERVER = str(Path(__file__).with_name("mcp_server.py"))
STDIO = StdioServer([sys.executable, SERVER, "stdio"])
KEY = (0, 0, 0, 0)
needs_mcp = pytest.mark.skipif(find_spec("mcp") is None, reason="needs the extra mcp")


def alive(pid):
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(*pids, within_s=5.0):
    until = time.monotonic() + within_s
    while any(map(alive, pids)):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def children():
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


@contextlib.asynccontextmanager
async def opened(tools):
    async with tools.open(KEY) as listed:
        yield {tool.name: tool for tool in listed}


async def answer(tool, **arguments):
    return await tool.call(arguments, (0,))


def limited(work, seconds=30):
    async def run():
        async with asyncio.timeout(seconds):
            return await work

    return asyncio.run(run())


@pytest.mark.extra
@needs_mcp
def test_time_on_the_connection_is_told_from_the_rest_of_a_call(tmp_path):
    """In a recorded graph: what opens a connection waits for it, and each call lies in the slice of its tool."""

    async def call(number: int, context: Context) -> str:
        env = ToolEnv([McpTools(STDIO)])
        try:
            with flow.span("reset"):
                await env.reset(Task("t", "?"), KEY)
            called = Message("assistant", "", (ToolCall("0", "add", {"a": number, "b": 2}),))
            return (await env.step(called)).messages[0].content
        finally:
            await env.close()

    graph, said = Graph("called"), Collected[str]()
    _ = graph.source("numbers", [1]) >> graph.stage("call", call) >> graph.sink("said", said)
    with PerfettoWriter(tmp_path / "run.pftrace") as recorder:
        asyncio.run(Run(graph.build(), recorder=recorder).finish())
    slices = read_trace(tmp_path).slices
    connected, asked = (each for each in slices if each.name == "network")
    (reset,), (tool,) = ([each for each in slices if each.name == name] for name in ("reset", "add"))
    for inner, outer in ((connected, reset), (asked, tool)):
        assert outer.start_ns <= inner.start_ns < inner.end_ns <= outer.end_ns
        assert inner.depth == outer.depth + 1


@pytest.mark.extra
@needs_mcp
def test_a_servers_tools_are_called_as_it_describes_them_and_it_ends_with_the_episode():
    before = set(os.listdir("/proc/self/fd"))

    async def run():
        async with opened(McpTools(STDIO)) as tools:
            add = tools["add"]
            said = [await answer(add, a=2, b=3), await answer(add, a=2), await answer(add, a="2", c=1)]
            said += [await answer(tools["refuse"]), await answer(tools["wait"], seconds=0)]
            pids = [int((await answer(tools["count"])).text.split()[-1]), int((await answer(tools["child"])).text)]
            return add, said, pids, asyncio.all_tasks()

    add, said, pids, tasks = limited(run())
    assert (add.description, add.parameters["properties"]["a"]["type"]) == ("Add two integers.", "integer")
    assert said[:2] == [ToolAnswer("5"), ToolAnswer("3")]
    assert said[2].outcome == "invalid"
    assert "'2' is not of type 'integer'" in said[2].text
    assert said[3] == ToolAnswer("error: no such page", "failed") or said[3].text.endswith("no such page")
    assert said[4] == ToolAnswer("waited")
    assert gone(*pids)  # the process that it left behind too
    assert all(task.done() for task in tasks)
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.mark.extra
@needs_mcp
def test_each_episode_has_a_server_of_its_own_unless_it_is_shared():
    async def counts(tools):
        async with opened(tools) as first, opened(tools) as second:
            return [(await answer(each["count"])).text.split() for each in (first, second, first)]

    async def run():
        apart, shared = McpTools(STDIO), McpTools(STDIO, shared=True)
        return await counts(apart), await counts(shared), await counts(shared)

    apart, shared, again = limited(run())
    assert [number for number, *_ in apart] == ["1", "1", "2"]
    assert [number for number, *_ in shared] == ["1", "2", "3"]
    assert [number for number, *_ in again] == ["1", "2", "3"]  # closed with the last episode, and opened again
    assert gone(*{int(words[-1]) for words in (*apart, *shared, *again)})


@pytest.mark.extra
@needs_mcp
def test_a_server_that_dies_is_a_broken_tool_and_the_next_episode_has_another():
    """S30: also where it is shared."""

    async def run():
        for tools in (McpTools(STDIO), McpTools(STDIO, shared=True)):
            async with opened(tools) as first:
                with pytest.raises(BrokenToolError, match="the MCP server is gone"):
                    await answer(first["die"])
                with pytest.raises(BrokenToolError, match="the MCP server is gone"):
                    await answer(first["add"], a=1)
            async with opened(tools) as second:
                assert (await answer(second["add"], a=1)).text == "2"

    limited(run())


@pytest.mark.extra
@needs_mcp
def test_a_program_that_is_no_server_is_a_broken_tool():
    async def run(command, **settings):
        async with opened(McpTools(StdioServer(command), **settings)):
            pass

    for command in (["false"], ["/absent/program"], [sys.executable, "-c", "print('hello')"]):
        with pytest.raises(BrokenToolError, match="the MCP server is gone"):
            limited(run(command))
    with pytest.raises(BrokenToolError, match=r"did not answer within 0\.3 s"):
        limited(run(["sleep", "600"], connect_s=0.3))


@pytest.mark.extra
@needs_mcp
def test_a_deadline_and_a_cancellation_leave_the_connection_usable():
    async def run():
        async with opened(McpTools(STDIO, deadline_s=0.2)) as tools:
            late = await answer(tools["wait"], seconds=0.5)
            call = asyncio.create_task(answer(tools["wait"], seconds=0.5))
            await asyncio.sleep(0.05)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            return late, await answer(tools["add"], a=1)

    late, after = limited(run())
    assert (late.text, after.text) == ("error: no answer within 0.2 s", "2")


@pytest.mark.extra
@needs_mcp
def test_an_opening_that_is_cancelled_leaves_no_server_behind():
    """S28: at several moments."""

    async def run():
        for delay_s in (0, 0.01, 0.1, 0.4):
            opening = asyncio.create_task(opened(McpTools(STDIO)).__aenter__())
            await asyncio.sleep(delay_s)
            opening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await opening
            assert gone(*children())

    limited(run())


@pytest.mark.extra
@needs_mcp
def test_a_server_dies_with_a_killed_run():
    code = f"""
import asyncio, sys
from stages.tools.mcp import McpTools
from stages.tools.mcp_session import StdioServer

async def main():
    async with McpTools(StdioServer([sys.executable, {SERVER!r}, "stdio"])).open((0, 0, 0, 0)) as tools:
        tools = {{tool.name: tool for tool in tools}}
        print((await tools["child"].call({{}}, (0,))).text, (await tools["count"].call({{}}, (0,))).text, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""
    root = Path(__file__).parents[3]
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=root, text=True) as owner:
        assert owner.stdout is not None
        pids = [int(pid) for pid in re.findall(r"\d{2,}", owner.stdout.readline())]
        assert len(pids) == 2
        assert all(map(alive, pids))
        owner.send_signal(signal.SIGKILL)
    assert gone(*pids)


SECRET = "s3cr3t-7c1f"


@pytest.mark.extra
@needs_mcp
def test_a_server_has_the_secrets_it_is_handed_and_loses_its_connection_when_one_is_revoked(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADRACE_TEST_KEY", "another secret")
    keys = Credentials({"search": SECRET})
    server = StdioServer(STDIO.command, environment=lambda: {"SEARCH_KEY": keys.get("search")})
    call = Message("assistant", "", (ToolCall("c", "key", {}),))
    waiting = Message("assistant", "", (ToolCall("c", "wait", {"seconds": 600}),))

    async def run():
        env = ToolEnv([McpTools(server, credentials=keys)])
        await env.reset(Task("t", "?"), KEY)
        told = (await env.step(call)).messages[0].content
        step = asyncio.create_task(env.step(waiting))
        await asyncio.sleep(0.1)
        revoke(tmp_path, "search")
        with pytest.raises(RevokedError):
            await step
        with pytest.raises(RevokedError):
            await env.step(call)
        await env.close()
        with pytest.raises(RevokedError):
            await env.reset(Task("t", "?"), KEY)
        await env.close()
        return told

    with revocations_in(tmp_path):
        assert limited(run()) == "key [credential search], our own None"


@pytest.mark.extra
@needs_mcp
def test_only_the_tools_that_are_named_are_shown():
    async def run(*names):
        async with opened(McpTools(STDIO, only=names)) as tools:
            return list(tools)

    assert limited(run("count", "add")) == ["add", "count"]
    with pytest.raises(LookupError, match=r"expected tools among add, count, .*; got subtract, in McpTools"):
        limited(run("add", "subtract"))


@pytest.mark.extra
@needs_mcp
def test_a_server_is_reached_over_http():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    async def run():
        tools = McpTools(HttpServer(f"http://127.0.0.1:{port}/mcp", headers=lambda: {"Authorization": "Bearer x"}))
        async with opened(tools) as first:
            said = [await answer(first["add"], a=20, b=22), await answer(first["refuse"])]
            server.kill()
            server.wait()
            with pytest.raises(BrokenToolError):
                await answer(first["add"], a=1)
        with pytest.raises(BrokenToolError):
            async with opened(tools):
                pass
        return said

    with subprocess.Popen([sys.executable, SERVER, "http", str(port)], stderr=subprocess.DEVNULL) as server:
        until = time.monotonic() + 10
        while time.monotonic() < until:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        said = limited(run())
    assert said[0] == ToolAnswer("42")
    assert said[1].outcome == "failed"


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(mcp, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"install it with pip install 'headrace\[mcp\]'"):
        McpTools(STDIO)
