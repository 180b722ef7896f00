import asyncio
from contextlib import asynccontextmanager

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flow import Context, Graph, Run
from flow.testing import run_virtual
from stages.envs.tool_env import ToolEnv
from stages.records import Message, Task, ToolCall
from stages.text.chat import reply_counter
from stages.text.pretrained import load_chat
from stages.tools.context import set_tool_context, tool_context_with
from stages.tools.function import FunctionTool
from stages.tools.limits import ToolLimits, cut_to_limits
from stages.tools.tool import ToolAnswer

END_S = 1000.0


def in_bytes(text):
    """Tokens of a byte-level format without merges: every byte is one."""
    return len(text.encode())


def test_answers_are_bounded_in_tokens_and_the_cut_is_marked():
    """S38: characters that take three tokens each; 100 tokens hold the mark and as many of them as fit beside it."""

    async def shout(times: int) -> str:
        """Shout."""
        return "水" * times

    tool = FunctionTool(shout, max_output_tokens=100)
    with tool_context_with(count_tokens=in_bytes):
        whole = asyncio.run(tool.call({"times": 33}, (0,))).text
        cut = asyncio.run(tool.call({"times": 34}, (0,))).text
    assert whole == "水" * 33
    mark = " [cut: 102 tokens]"
    assert cut.endswith(f"水{mark}")
    assert 100 - 2 * 3 - len(mark) <= in_bytes(cut) - len(mark) <= 100 - len(mark)


@settings(max_examples=40)
@given(st.text(max_size=300), st.integers(32, 80), st.integers(1, 400))
def test_both_bounds_hold_for_any_text(text, tokens, chars):
    limits = ToolLimits(max_output_tokens=tokens, max_output_chars=chars)
    with tool_context_with(count_tokens=in_bytes):
        cut = cut_to_limits(text, limits)
    assert len(cut) <= max(chars, tokens)
    assert in_bytes(cut) <= tokens
    if in_bytes(text) <= tokens and len(text) <= chars:
        assert cut == text
    else:
        assert "[cut: " in cut or chars < 30


def test_a_long_answer_is_counted_a_few_times_only():
    counted = []

    def count(text):
        counted.append(len(text))
        return len(text.encode())

    with tool_context_with(count_tokens=count):
        cut_to_limits("水" * 8000, ToolLimits())
    assert len(counted) < 8
    assert max(counted) <= 8000


def test_unknown_limits_are_refused():
    async def act() -> None:
        """Act."""

    with pytest.raises(ValueError, match="deadline"):
        FunctionTool(act, deadline=3)


def play(work, *, pools=None, rates=None, workers=4, count=4):
    """Numbers through a stage in a graph of its own, in virtual time."""
    graph = Graph("tools", pools=pools, rates=rates)
    stage = graph.stage("stage", work, workers=workers)
    _ = graph.source("source", range(count)) >> stage >> graph.sink("sink", lambda value, context: None)

    async def main():
        async with asyncio.timeout(END_S):
            return await Run(graph.build()).finish()

    return run_virtual(main())


def calling(tool, started=None, answers=None):
    async def work(value: int, context: Context) -> int:
        set_tool_context(permit=context.permit)
        answer = await tool.call({}, (value,))
        if answers is not None:
            answers.append(answer)
        return value

    return work


def test_a_call_holds_a_unit_of_its_pool_and_waiting_is_not_charged_to_its_deadline():
    """Four calls of 6 s, one unit: the last waits 18 s, three times its deadline, and answers; the wait shows as pool wait."""

    async def slow() -> str:
        """Take a while."""
        await anyio.sleep(6)
        return "done"

    answers = []
    summary = play(calling(FunctionTool(slow, pool="sandbox", deadline_s=7), answers=answers), pools={"sandbox": 1})
    assert answers == [ToolAnswer("done")] * 4
    assert summary.seconds == pytest.approx(24)
    # 6 + 12 + 18 s of waiting in 4 lanes of 24 s.
    assert summary.nodes["stage"].shares["pool"] == pytest.approx(36 / 96, abs=0.01)


def test_a_unit_comes_back_after_a_deadline_and_a_failure():
    """S13: the next call starts at the deadline of the one before."""
    left = ["hang", "raise", "hang", "raise"]

    async def break_down() -> None:
        """Break down."""
        if left.pop() == "raise":
            raise OSError("no")
        await anyio.sleep_forever()

    answers = []
    summary = play(calling(FunctionTool(break_down, pool="sandbox", deadline_s=5), answers=answers), pools={"sandbox": 1})
    assert sorted(answer.text for answer in answers) == ["error: no"] * 2 + ["error: no answer within 5 s"] * 2
    assert summary.seconds == pytest.approx(10)


def test_calls_start_no_faster_than_their_rate():
    started = []

    async def search() -> None:
        """Search."""
        started.append(asyncio.get_running_loop().time())

    play(calling(FunctionTool(search, rate="search")), rates={"search": 2}, workers=5, count=5)
    assert [time - started[0] for time in started] == pytest.approx([0, 0.5, 1, 1.5, 2])


def test_a_pool_the_graph_does_not_have_is_no_answer_but_an_error():
    async def act() -> None:
        """Act."""

    with pytest.raises(Exception, match="asks for 1 of pool 'sandbox', which does not exist"):
        play(calling(FunctionTool(act, pool="sandbox")))


def test_outside_of_a_graph_a_call_starts_at_once():
    async def act() -> str:
        """Act."""
        return "done"

    assert asyncio.run(FunctionTool(act, pool="sandbox", rate="search").call({}, (0,))).text == "done"


def test_a_permit_is_asked_for_all_at_once():
    asked = []

    @asynccontextmanager
    async def permit(needs):
        asked.append(needs)
        yield

    async def act() -> None:
        """Act."""

    with tool_context_with(permit=permit):
        asyncio.run(FunctionTool(act, pool="sandbox", rate="search").call({}, (0,)))
        asyncio.run(FunctionTool(act).call({}, (0,)))
    assert asked == [{"sandbox": 1, "search": 1}]


@pytest.mark.slow
@pytest.mark.parametrize("text", ["The capital of one is two. " * 400, "水や🜁 " * 700, "<|im_end|>" * 400])
def test_a_bound_in_tokens_holds_in_a_real_conversation(pretrained_folder, text):
    """S38: what the reply adds to the ids of an episode, its frame apart."""
    chat = load_chat(pretrained_folder)
    with tool_context_with(count_tokens=reply_counter(chat)):
        cut = cut_to_limits(text, ToolLimits(max_output_tokens=200))
    frame, whole = (len(chat.extend([Message("tool", content, call_id="call-0-0")])) for content in ("", cut))
    assert 150 < whole - frame <= 200
    assert text.startswith(cut[: cut.index(" [cut: ")])


@pytest.mark.parametrize("seed", range(5))
def test_units_of_parallel_calls_come_back_though_workers_are_killed(seed):
    """S13, S32: two tools share a pool of two, one also under a rate, in turns of six calls; tasks are cancelled at random."""
    inside, most = [], []

    async def use() -> None:
        """Use a unit."""
        inside.append(1)
        most.append(len(inside))
        try:
            await anyio.sleep(1)
        finally:
            inside.pop()

    tools = [FunctionTool(use, pool="sandbox"), FunctionTool(use, name="search", pool="sandbox", rate="search")]
    turn = Message("assistant", "", tuple(ToolCall(f"c{i}", ("use", "search")[i % 2], {}) for i in range(6)))

    async def work(value: int, context: Context) -> int:
        set_tool_context(permit=context.permit)
        env = ToolEnv(tools, parallel=True)
        await env.reset(Task("t", "?"), (0, value, 0, 0))
        reply = await env.step(turn)
        assert [message.content for message in reply.messages] == ["None"] * 6
        return value

    graph = Graph("tools", pools={"sandbox": 2}, rates={"search": 4})
    got = []
    stage = graph.stage("stage", work, workers=3)
    _ = graph.source("source", range(8)) >> stage >> graph.sink("sink", lambda value, context: got.append(value))

    async def main():
        async with asyncio.timeout(END_S):
            run = Run(graph.build(quiet=True))
            await run.finish()
            return run.state.pools

    pools = run_virtual(main(), seed=seed, kill=0.4)
    assert sorted(got) == list(range(8))
    assert pools.free == {"sandbox": 2}
    assert (max(most), inside) == (2, [])
    assert len(most) > 8 * 6  # some calls were begun twice, so some were killed
