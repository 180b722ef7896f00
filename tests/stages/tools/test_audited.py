"""The calls of a tool environment: their audit rows, and the secrets that are in no answer."""

import asyncio

import pytest

from stages.envs.tool_env import ToolEnv
from stages.records import BadCall, Message, Task, ToolCall
from stages.tools.calculator import calculator_tool
from stages.tools.context import tool_context_with
from stages.tools.credentials import Credentials, RevokedError, revocations_in, revoke
from stages.tools.function import FunctionTool
from stages.tools.methods import MethodTools
from stages.tools.tool import BrokenToolError

TASK = Task("t", "2*3", "6")
KEY = (1, 2, 3, 4)


def asking(*names):
    return Message("assistant", "", tuple(ToolCall(f"c{i}", name, {}) for i, name in enumerate(names)))


def play(env, *turns):
    async def run():
        opening = await env.reset(TASK, KEY)
        return opening, [await env.step(turn) for turn in turns]

    return asyncio.run(run())


def audited(env, *turns):
    rows = []
    with tool_context_with(audit=rows.append, attempt=2):
        _, replies = play(env, *turns)
    return rows, replies


def test_every_call_leaves_audit_rows_of_its_start_and_its_end():
    async def fail() -> None:
        """Fail."""
        raise OSError("no")

    turn = Message(
        "assistant",
        "",
        (
            BadCall("c0", "no JSON"),
            ToolCall("c1", "erase", {"path": "x" * 999}),
            ToolCall("c2", "calculator", {"expression": "1+1"}),
            ToolCall("c3", "fail", {}),
        ),
    )
    rows, _ = audited(ToolEnv([calculator_tool(), FunctionTool(fail)], max_invalid=9), turn, asking("fail"))
    assert [(row["turn"], row["call"], row["tool"], row["outcome"]) for row in rows] == [
        (0, "c0", None, "invalid"),
        (0, "c1", "erase", "invalid"),
        (0, "c2", "calculator", "started"),
        (0, "c2", "calculator", "answer"),
        (0, "c3", "fail", "started"),
        (0, "c3", "fail", "failed"),
        (1, "c0", "fail", "started"),
        (1, "c0", "fail", "failed"),
    ]
    assert {(row["task"], row["birth"], row["member"], row["retry"], row["attempt"]) for row in rows} == {("t", 2, 3, 4, 2)}
    assert rows[2]["arguments"] == '{"expression": "1+1"}'
    assert len(rows[1]["arguments"]) == 500
    assert all(row["credentials"] == [] for row in rows)
    assert all((row["seconds"] is None) == (row["outcome"] == "started") for row in rows)


SECRET = "s3cr3t-7c1f"
KEYS = Credentials({"search": SECRET, "mail": "m-5521"})


class Searching:
    """Uses a credential, and tells it to whoever asks."""

    async def search(self) -> str:
        """Search."""
        self._key = KEYS.get("search")
        return f"200 OK for {self._key}"

    async def echo(self, text: str) -> str:
        """Echo."""
        raise OSError(f"{text} {self._key}")

    async def break_down(self) -> None:
        """Break."""
        raise BrokenToolError(f"no answer at https://{self._key}@host")


def test_a_secret_that_was_used_is_in_no_answer_no_audit_row_and_no_error():
    env = ToolEnv([MethodTools(Searching)])
    echo = Message("assistant", "", (ToolCall("c1", "echo", {"text": SECRET}),))
    rows, replies = audited(env, asking("search"), echo)
    assert [reply.messages[0].content for reply in replies] == [
        "200 OK for [credential search]",
        "error: [credential search] [credential search]",
    ]
    assert [row["credentials"] for row in rows] == [[], ["search"], [], []]
    assert SECRET not in repr(rows)
    with pytest.raises(BrokenToolError, match=r"https://\[credential search\]@host") as broken:
        play(ToolEnv([MethodTools(Searching)]), asking("search"), asking("break_down"))
    assert broken.value.__cause__ is None
    assert broken.value.__suppress_context__


def test_a_revoked_credential_ends_the_episode_and_not_the_others(tmp_path):
    with revocations_in(tmp_path):
        revoke(tmp_path, "mail")
        _, (reply,) = play(ToolEnv([MethodTools(Searching)]), asking("search"))
        assert reply.messages[0].content == "200 OK for [credential search]"
        revoke(tmp_path, "search")
        with pytest.raises(RevokedError):
            play(ToolEnv([MethodTools(Searching)]), asking("search"))


def test_a_cut_leaves_no_half_of_a_secret():
    async def tell() -> str:
        """Tell."""
        return f"{'x' * 70}{KEYS.get('search')}{'y' * 99}"

    _, (reply,) = audited(ToolEnv([FunctionTool(tell, max_output_chars=100)]), asking("tell"))
    assert SECRET[:3] not in reply.messages[0].content
    assert reply.messages[0].content.startswith("x" * 70 + "[cred")


def test_a_secret_is_in_no_error_of_an_opening():
    def connect():
        raise OSError(f"no route to https://{KEYS.get('search')}@host")

    with pytest.raises(RuntimeError, match=r"no route to https://\[credential search\]@host"):
        play(ToolEnv([MethodTools(connect, of=Searching)]))


def test_a_call_under_way_is_known():
    """A killed run has no more: the start is told before the tool is asked."""
    rows, seen = [], []

    async def look() -> str:
        """Look."""
        seen.extend(row["outcome"] for row in rows)
        return "done"

    with tool_context_with(audit=rows.append):
        play(ToolEnv([FunctionTool(look)]), asking("look"))
    assert seen == ["started"]


def test_a_secret_is_in_no_argument_however_it_is_escaped():
    keys = Credentials({"pem": 'line1 "q"\nline2'})

    async def use(text: str) -> str:
        """Use."""
        raise KeyError(keys.get("pem") + text)

    asked = Message("assistant", "", (ToolCall("c0", "use", {"text": keys.get("pem")}),))
    rows, replies = audited(ToolEnv([FunctionTool(use)]), asked, asked)
    assert [reply.messages[0].content for reply in replies] == ["error: '[credential pem][credential pem]'"] * 2
    assert [row["arguments"] for row in rows[1:]] == ['{"text": "[credential pem]"}'] * 3
