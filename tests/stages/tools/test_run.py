import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stages.envs.tool_env import ToolEnv
from stages.records import Message, Task, ToolCall
from stages.tools.calculator import calculator_tool
from stages.tools.credentials import Credentials, RevokedError, revoke
from stages.tools.run import tools_of_run

CALL = Message("assistant", "", (ToolCall("c", "calculator", {"expression": "1+1"}),))
ELSEWHERE = """
import asyncio
from stages.envs.tool_env import ToolEnv
from stages.records import Message, Task, ToolCall
from stages.tools.calculator import calculator_tool
from stages.tools.credentials import Credentials, revoked

async def main():
    env = ToolEnv([calculator_tool()])
    await env.reset(Task("elsewhere", "?"), (0, 0, 0, 0))
    await env.step(Message("assistant", "", (ToolCall("c", "calculator", {"expression": "1+1"}),)))
    print(revoked("search"), revoked("mail"))

asyncio.run(main())
"""


async def one_call(task):
    env = ToolEnv([calculator_tool()])
    await env.reset(Task(task, "?"), (0, 0, 0, 0))
    await env.step(CALL)


def test_calls_of_a_block_are_told_and_calls_after_it_are_not(tmp_path):
    before = dict(os.environ)
    for phase in ("first", "second"):
        with tools_of_run(tmp_path, phase):
            asyncio.run(one_call("inside"))
        asyncio.run(one_call("outside"))
    rows = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [(row["task"], row["phase"], row["outcome"]) for row in rows] == [
        ("inside", phase, outcome) for phase in ("first", "second") for outcome in ("started", "answer")
    ]
    assert dict(os.environ) == before


@pytest.mark.slow
def test_a_process_of_the_run_writes_rows_and_heeds_revocations(tmp_path):
    keys = Credentials({"search": "s3cr3t"})
    with tools_of_run(tmp_path, "rl"):
        revoke(tmp_path, "search")
        with pytest.raises(RevokedError):
            keys.get("search")
        root = Path(__file__).parents[3]
        done = subprocess.run([sys.executable, "-c", ELSEWHERE], cwd=root, capture_output=True, text=True, check=False)
    assert done.stdout == "True False\n", done.stderr
    started, row = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert (row["task"], row["phase"], row["tool"], row["outcome"]) == ("elsewhere", "rl", "calculator", "answer")
    assert started["outcome"] == "started"
    assert keys.get("search") == "s3cr3t"
