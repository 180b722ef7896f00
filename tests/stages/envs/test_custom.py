"""Environments of one's own: plain methods off the loop, plain text for records, and calls that nobody answered."""

import asyncio
import threading
import time

import pytest

from stages.envs.custom import CustomEnv, cut, earned, hosted, over
from stages.envs.environment import Opening, Reply
from stages.envs.home_thread import HomeThread
from stages.envs.task_env import TaskEnv
from stages.records import Message, Status, Task, ToolCall
from stages.tools.calculator import calculator_tool
from stages.tools.context import tool_context_with
from stages.tools.methods import MethodTools
from stages.tools.tool import ToolAnswer

TASK, KEY = Task("t", "say 6", "6"), (0, 0, 0, 0)


class Plain(CustomEnv):
    """Answers what it was made with, and notes its threads."""

    def __init__(self, answer="more", score=None, blocks_s=0.0):
        self.answer, self.points, self.blocks_s, self.threads = answer, score, blocks_s, []

    def reset(self, task, key):
        self.threads.append(threading.get_ident())
        return task.prompt

    def step(self, message):
        self.threads.append(threading.get_ident())
        time.sleep(self.blocks_s)
        return self.answer

    def score(self):
        self.threads.append(threading.get_ident())
        return self.points

    def close(self):
        self.threads.append(threading.get_ident())


class Coroutines(CustomEnv):
    async def reset(self, task, key):
        return [Message("system", "be brief"), Message("user", task.prompt)]

    async def step(self, message):
        return over("well done")


SIX = Message("assistant", "6")


def play(env, said=SIX):
    """Everything that is done to an environment, in order."""

    async def main():
        thread = HomeThread()
        host = hosted(env, thread)
        outcome = (await host.reset(TASK, KEY), await host.step(said), await host.score())
        await host.close()
        thread.shutdown()
        await thread.ended()
        return outcome

    return asyncio.run(main())


def test_plain_text_opens_and_answers():
    opening, reply, parts = play(Plain(score=0.5))
    assert opening == Opening((Message("user", "say 6"),))
    assert reply == Reply((Message("user", "more"),))
    assert parts == {"reward": 0.5}


def test_coroutine_functions_and_records_pass_as_they_are():
    opening, reply, parts = play(Coroutines())
    assert [message.role for message in opening.messages] == ["system", "user"]
    assert reply == Reply((Message("user", "well done"),), Status.FINISHED)
    assert parts is None
    assert play(Plain(cut("too late", "night falls")))[1] == Reply(
        (Message("user", "night falls"),), Status.TRUNCATED_TURNS, "too late"
    )


def test_a_turn_may_earn_something_whether_the_episode_goes_on_or_not():
    call = Message("assistant", "", (ToolCall("a", "weather", {}),))
    assert play(Plain(earned(0.5, "on")))[1] == Reply((Message("user", "on"),), reward=0.5)
    assert play(Plain(over(reward=1.0)))[1] == Reply((), Status.FINISHED, reward=1.0)
    assert play(Plain(cut("too late", reward=-1.0)))[1] == Reply((), Status.TRUNCATED_TURNS, "too late", -1.0)
    unanswered = play(Plain(earned(0.5, "on")), call)[1]
    assert ([message.role for message in unanswered.messages], unanswered.reward) == (["tool", "user"], 0.5)


def test_an_environment_of_the_protocol_is_left_alone():
    env = TaskEnv()
    assert hosted(env, HomeThread()) is env


def test_all_plain_methods_run_in_one_thread_that_is_not_the_loop():
    env = Plain()
    play(env)
    assert len(env.threads) == 4
    assert len(set(env.threads)) == 1
    assert env.threads[0] != threading.get_ident()


def test_calls_of_its_tools_are_answered_and_the_other_turns_are_its_own():
    class Quiz(Plain):
        tools = (calculator_tool(),)

    env = Quiz(answer=over("right"))
    call = Message("assistant", "", (ToolCall("a", "calculator", {"expression": "2*3"}),))
    opening, reply, _ = play(env, call)
    assert [tool.name for tool in opening.tools] == ["calculator"]
    assert reply.messages == (Message("tool", "6", call_id="a"),)
    assert len(env.threads) == 3, "reset, score and close: its step was not asked"
    assert play(Quiz(answer=over("right")))[1].end is Status.FINISHED


def test_calls_that_nobody_answered_are_answered_with_an_error():
    said = Message("assistant", "", (ToolCall("a", "look", {}), ToolCall("b", "look", {})))
    reply = play(Plain((Message("tool", "a door", call_id="b"),)), said)[1]
    assert [(m.call_id, m.content) for m in reply.messages] == [
        ("a", "error: expected no call of this kind here"),
        ("b", "a door"),
    ]
    assert play(Plain(over()), said)[1].messages == ()


@pytest.mark.parametrize("answer", [None, 3, ["text"]])
def test_what_is_no_answer_is_told_with_what_would_be_one(answer):
    with pytest.raises(TypeError, match=r"expected text, messages or a Reply; got \w+, from Plain.step; return one of these"):
        play(Plain(answer))


def test_environments_that_block_hold_up_neither_the_loop_nor_each_other():
    """S24: eight environments that block for 100 ms take about that long in all, and a ticker goes on."""

    async def main():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.002)
                ticks += 1

        ticker = asyncio.create_task(tick())
        threads = [HomeThread() for _ in range(8)]
        began = time.monotonic()
        await asyncio.gather(*(hosted(Plain(blocks_s=0.1), t).step(Message("assistant", "6")) for t in threads))
        took = time.monotonic() - began
        ticker.cancel()
        for thread in threads:
            thread.shutdown()
            await thread.ended()
        return took, ticks

    took, ticks = asyncio.run(main())
    assert took < 0.4
    assert ticks > 10


def test_a_plain_close_runs_after_the_step_that_was_given_up():
    order = []

    class Slow(Plain):
        def step(self, message):
            time.sleep(0.05)
            order.append("step")

        def close(self):
            order.append("close")

    async def main():
        thread = HomeThread()
        host = hosted(Slow(), thread)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(host.step(Message("assistant", "6")), 0.01)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(host.close(), 0.001)
        thread.shutdown()
        await thread.ended()

    asyncio.run(main())
    assert order == ["step", "close"]


class TalksToo(CustomEnv):
    """Answers talk itself; its tools answer calls."""

    def __init__(self, seen):
        self.tools = (Drawn(seen),)

    def reset(self, task, key):
        return task.prompt

    def step(self, message):
        return "go on"


class Drawn:
    """A tool that tells the key of its draws."""

    name, description, parameters = "drawn", "Draw.", {"type": "object", "properties": {}}

    def __init__(self, seen):
        self.seen = seen

    async def call(self, arguments, key):
        self.seen.append(key)
        return ToolAnswer("drawn")


def test_the_turns_of_calls_are_those_of_the_conversation():
    """A turn without a call counts too, in the audit log and in what a tool draws."""
    seen, rows = [], []
    call, talk = Message("assistant", "", (ToolCall("c0", "drawn", {}),)), Message("assistant", "so")

    async def run():
        thread = HomeThread()
        env = hosted(TalksToo(seen), thread)
        for _ in range(2):  # the second episode begins anew
            await env.reset(Task("t", "?"), (1, 2, 3, 4))
            for message in (talk, talk, call, talk, call):
                await env.step(message)
        thread.shutdown()

    with tool_context_with(audit=rows.append):
        asyncio.run(run())
    assert [row["turn"] for row in rows if row["outcome"] == "answer"] == [2, 4, 2, 4]
    assert seen == [(1, 2, 3, 4, 2, 0), (1, 2, 3, 4, 4, 0)] * 2


def test_tools_of_an_episode_are_closed_when_the_next_begins():
    opened, closed = [], []

    class Counted:
        def __init__(self):
            opened.append(self)

        def ping(self) -> str:
            """Ping."""
            return "pong"

        async def close(self):
            closed.append(self)

    class Again(Coroutines):
        tools = (MethodTools(Counted),)

    async def run():
        env = hosted(Again(), HomeThread())
        for number in range(3):
            await env.reset(TASK, KEY)
            assert len(closed) == number
        await env.close()

    asyncio.run(run())
    assert closed == opened
