"""Whatever a model calls, in whatever mixture, each call has exactly one reply."""

import asyncio
from collections import Counter

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flow.testing import run_virtual
from stages.envs.tool_env import ToolEnv
from stages.records import BadCall, Message, Task, ToolCall
from stages.tools.context import tool_context_with
from stages.tools.function import FunctionTool

RAN = Counter()


async def good(n: int) -> str:
    """Answer."""
    RAN["good"] += 1
    return str(n) * 300


async def slow(n: int) -> str:
    """Answer after the deadline."""
    await anyio.sleep(100)
    return str(n)


async def broken(n: int) -> str:
    """Raise."""
    raise OSError(f"{n}\udcff" * 300)


async def itself(n: int) -> str:
    """Cancel itself."""
    raise asyncio.CancelledError


KINDS = {
    "good": ("good", {"n": 7}), "misfit": ("good", {"m": "x" * 300}), "slow": ("slow", {"n": 1}),
    "broken": ("broken", {"n": 1}), "itself": ("itself", {"n": 1}), "unknown": ("y" * 300, {"n": 1}),
}  # fmt: skip


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from([*KINDS, "bad"]), min_size=1, max_size=12), min_size=1, max_size=3),
    st.one_of(st.booleans(), st.sets(st.sampled_from(["good", "slow", "broken", "itself"]))),
    st.integers(1, 5),
)
def test_any_mixture_of_calls_gets_one_bounded_reply_each_under_its_own_id(turns, parallel, max_invalid):
    """S44, S48, S49, S52, S53: only whole, valid calls are executed, and nothing runs after the end."""
    limits = {"deadline_s": 5, "max_output_chars": 100}
    tools = [FunctionTool(function, **limits) for function in (good, slow, broken, itself)]
    env = ToolEnv(tools, parallel=parallel, max_invalid=max_invalid, max_calls_per_turn=9, max_reply_chars=150)
    messages = [
        Message(
            "assistant",
            "",
            tuple(
                BadCall(f"{turn}-{index}", "z" * 300) if kind == "bad" else ToolCall(f"{turn}-{index}", *KINDS[kind])
                for index, kind in enumerate(kinds)
            ),
        )
        for turn, kinds in enumerate(turns)
    ]
    RAN.clear()
    rows = []

    async def run():
        await env.reset(Task("t", "?"), (0, 0, 0, 0))
        replies = []
        for message in messages:
            replies.append(await env.step(message))
            if replies[-1].end is not None:
                break
        await env.close()
        return replies

    with tool_context_with(audit=rows.append):
        replies = run_virtual(run())
    for message, reply in zip(messages, replies, strict=False):
        assert [answer.call_id for answer in reply.messages] == [call.id for call in message.calls]
        assert max(len(answer.content) for answer in reply.messages) <= 150
    answers = [answer for reply in replies for answer in reply.messages]
    assert sum(answer.content.startswith("7" * 70) for answer in answers) == RAN["good"]
    ended = [row["call"] for row in rows if row["outcome"] != "started"]
    assert Counter(ended) == Counter(answer.call_id for answer in answers)
    ends = longest_run([kind in ("misfit", "unknown", "bad") or i >= 9 for kinds in turns for i, kind in enumerate(kinds)])
    assert (replies[-1].end is not None) == (ends >= max_invalid)


def longest_run(invalid):
    """Most invalid calls in a row."""
    most = here = 0
    for one in invalid:
        here = here + 1 if one else 0
        most = max(most, here)
    return most
