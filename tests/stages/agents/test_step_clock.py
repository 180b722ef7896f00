"""The limit of a step counts what its calls do, not their wait for permits: in a real graph in virtual time."""

import anyio
import pytest

from flow import Context, Graph
from flow.testing import Collected, simulate
from stages.agents.guards import ConversationClock, EpisodeError, GuardedEnvironment, TimeLimits
from stages.agents.part_clock import PartClock
from stages.envs.tool_env import ToolEnv
from stages.records import Message, Task, ToolCall
from stages.tools.context import set_tool_context
from stages.tools.function import FunctionTool


async def work(seconds: float) -> str:
    """Work under a permit."""
    await anyio.sleep(seconds)
    return "done"


TOOLS = [FunctionTool(work, pool="sandbox", deadline_s=None), FunctionTool(work, name="free", deadline_s=None)]


def played(limits, *turns):
    """One step of each turn, all begun at once, over one unit; (turn, how it ended, when) in the order in which they end.

    Args:
        limits: of the steps.
        turns: the calls of each, as (tool, seconds).
    """
    ends = Collected()

    async def step(number: int, context: Context) -> tuple[int, str, float]:
        set_tool_context(permit=context.permit)
        env = GuardedEnvironment(ToolEnv(TOOLS, parallel=("work",)), limits, context, PartClock(context))
        await env.reset(Task("t", "?"), (0, number, 0, 0))
        env.clock = ConversationClock(limits)
        calls = tuple(ToolCall(str(i), tool, {"seconds": seconds}) for i, (tool, seconds) in enumerate(turns[number]))
        how = "answered"
        try:
            reply = await env.step(Message("assistant", "", calls))
            assert [message.content for message in reply.messages] == ["done"] * len(calls)
        except EpisodeError as fault:
            how = str(fault)
        return number, how, round(anyio.current_time(), 3)

    graph = Graph("steps", pools={"sandbox": 1})
    graph.source("turns", range(len(turns))) >> graph.stage("step", step, workers=len(turns)) >> graph.sink("ends", ends)
    simulate(graph)
    return ends.values


LATE = "timed_out: the environment's step took over 4 s"


def test_the_wait_for_a_permit_does_not_count():
    """The third call waits 6 s, more than the limit of its step; one that takes longer than that itself is late."""
    ends = played(TimeLimits(step_s=4), *[[("work", 3)]] * 3, [("work", 9)])
    assert ends == [(0, "answered", 3.0), (1, "answered", 6.0), (2, "answered", 9.0), (3, LATE, 13.0)]


def test_what_was_used_up_before_a_wait_is_gone_after_it():
    """Turn 1 takes 1 s of its own, waits from 1 to 3, and of its 4 s has 3 left: until 6."""
    ends = played(TimeLimits(step_s=4), [("work", 3)], [("free", 1), ("work", 9)])
    assert ends == [(0, "answered", 3.0), (1, LATE, 6.0)]


def test_a_call_that_waits_for_what_a_neighbour_holds_does_not_stop_the_clock():
    """Otherwise a call that hangs would hold up its own step for ever."""
    assert played(TimeLimits(step_s=4), [("work", 99), ("work", 1)]) == [(0, LATE, 4.0)]


def test_the_limit_of_the_conversation_counts_every_wait():
    ends = played(TimeLimits(step_s=4, episode_s=5), [("work", 3)], [("work", 3)])
    assert ends == [(0, "answered", 3.0), (1, "timed_out: the conversation took over 5 s", 5.0)]


@pytest.mark.parametrize("seed", range(5))
def test_a_step_without_a_limit_waits_and_ends(seed):
    assert [how for _, how, _ in played(TimeLimits(step_s=None), *[[("work", seed + 1)]] * 3)] == ["answered"] * 3
