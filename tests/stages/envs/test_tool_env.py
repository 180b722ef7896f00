import asyncio
from contextlib import asynccontextmanager

import anyio
import pytest

from flow.testing import run_virtual
from stages.envs.tool_env import ToolEnv
from stages.records import BadCall, Message, Status, Task, ToolCall
from stages.tools.calculator import calculator_tool
from stages.tools.function import FunctionTool
from stages.tools.methods import MethodTools
from stages.tools.tool import BrokenToolError

TASK = Task("t", "2*3", "6")
KEY = (1, 2, 3, 4)


def calls(*expressions):
    return Message(
        "assistant", "", tuple(ToolCall(f"c{i}", "calculator", {"expression": e}) for i, e in enumerate(expressions))
    )


def play(env, *turns):
    async def run():
        opening = await env.reset(TASK, KEY)
        return opening, [await env.step(turn) for turn in turns]

    return asyncio.run(run())


def test_it_opens_with_the_prompt_and_shows_its_tools():
    opening, _ = play(ToolEnv([calculator_tool()], system="Be brief."))
    assert opening.messages == (Message("system", "Be brief."), Message("user", "2*3"))
    assert [tool.name for tool in opening.tools] == ["calculator"]


def test_every_call_of_a_turn_is_executed_and_answered_under_its_own_id():
    """S49, S50."""
    _, (reply,) = play(ToolEnv([calculator_tool()]), calls("1+1", "2*3", "9-4"))
    assert [(m.role, m.call_id, m.content) for m in reply.messages] == [
        ("tool", "c0", "2"),
        ("tool", "c1", "6"),
        ("tool", "c2", "5"),
    ]
    assert reply.end is None


def test_a_turn_without_a_call_finishes():
    _, (_, last) = play(ToolEnv([calculator_tool()]), calls("2*3"), Message("assistant", "6"))
    assert (last.messages, last.end, last.reason) == ((), Status.FINISHED, None)


def test_what_is_no_call_is_answered_under_its_id_and_not_executed():
    """S44, S48, S52."""
    ran = []

    def delete(path: str) -> None:
        """Delete."""
        ran.append(path)

    turn = Message(
        "assistant",
        "",
        (BadCall("c0", "expected JSON, got ,"), ToolCall("c1", "erase", {}), ToolCall("c2", "delete", {})),
    )
    _, (reply,) = play(ToolEnv([FunctionTool(delete)], max_invalid=9), turn)
    assert [(m.call_id, m.content) for m in reply.messages] == [
        ("c0", "error: expected JSON, got ,"),
        ("c1", "error: expected one of delete, got erase"),
        ("c2", "error: path: Field required"),
    ]
    assert ran == []


def test_invalid_calls_in_a_row_end_the_episode_with_their_own_reason():
    """S53."""
    bad = Message("assistant", "", (BadCall("c", "no"),))
    _, replies = play(ToolEnv([calculator_tool()], max_invalid=3), bad, bad, calls("1+1"), bad, bad, bad)
    assert [reply.end for reply in replies] == [None] * 5 + [Status.TRUNCATED_TURNS]
    assert replies[-1].reason == "3 invalid calls in a row"


def test_a_failure_of_the_tool_is_no_invalid_call():
    """S53."""
    _, replies = play(ToolEnv([calculator_tool()], max_invalid=2), *[calls("1/0")] * 5)
    assert {reply.messages[0].content for reply in replies} == {"error: division by zero"}
    assert [reply.end for reply in replies] == [None] * 5


def test_a_call_in_the_last_turn_is_not_executed():
    ran = []

    def act() -> None:
        """Act."""
        ran.append(1)

    turn = Message("assistant", "", (ToolCall("c", "act", {}),))
    _, (_, last) = play(ToolEnv([FunctionTool(act)], max_turns=2), turn, turn)
    assert (last.end, last.reason) == (Status.TRUNCATED_TURNS, "still calling tools in turn 2 of 2")
    assert len(ran) == 1


def test_calls_beyond_the_bound_are_answered_and_not_executed():
    _, (reply,) = play(ToolEnv([calculator_tool()], max_calls_per_turn=2), calls("1", "2", "3"))
    assert [m.content for m in reply.messages] == ["1", "2", "error: expected at most 2 calls in one turn"]


def test_tools_get_a_key_of_episode_turn_and_call():
    seen = []

    class Spy:
        name, description, parameters = "calculator", "", {}

        async def call(self, arguments, key):
            seen.append(key)
            return await calculator_tool().call(arguments, key)

    play(ToolEnv([Spy()]), calls("1", "2"), calls("3"))
    assert seen == [(*KEY, 0, 0), (*KEY, 0, 1), (*KEY, 1, 0)]


def test_a_broken_tool_is_raised():
    def down() -> None:
        """Be down."""
        raise BrokenToolError("no connection")

    with pytest.raises(BrokenToolError):
        play(ToolEnv([FunctionTool(down)]), Message("assistant", "", (ToolCall("c", "down", {}),)))


def test_a_scorer_sees_the_task_and_what_was_said():
    env = ToolEnv([calculator_tool()], scorer=lambda task, said: {"right": float(said[-1].content == task.answer)})
    play(env, calls("2*3"), Message("assistant", "6"))
    assert asyncio.run(env.score()) == {"right": 1.0}
    assert asyncio.run(ToolEnv([]).score()) is None


def test_tools_of_one_name_are_refused():
    with pytest.raises(ValueError, match=r"names that differ; got \['calculator', 'calculator'\]"):
        ToolEnv([calculator_tool(), calculator_tool()])


def asking(*names):
    return Message("assistant", "", tuple(ToolCall(f"c{i}", name, {}) for i, name in enumerate(names)))


def timed(seconds_of):
    """Tools that take virtual seconds, and a list of when each began and ended."""
    log = []

    def tool(name, seconds):
        async def work() -> str:
            """Work."""
            loop = asyncio.get_running_loop()
            log.append((name, "begins", loop.time()))
            await anyio.sleep(seconds)
            log.append((name, "ends", loop.time()))
            return name

        return FunctionTool(work, name=name)

    return [tool(name, seconds) for name, seconds in seconds_of.items()], log


def seconds_of_a_turn(env, turn):
    async def run():
        await env.reset(TASK, KEY)
        start = asyncio.get_running_loop().time()
        reply = await env.step(turn)
        return [message.content for message in reply.messages], asyncio.get_running_loop().time() - start

    return run_virtual(run())


def test_calls_run_one_after_another_unless_declared_parallel():
    tools, _ = timed({"a": 3, "b": 2, "c": 1})
    turn = asking("a", "b", "c")
    assert seconds_of_a_turn(ToolEnv(tools), turn) == (["a", "b", "c"], pytest.approx(6))
    assert seconds_of_a_turn(ToolEnv(tools, parallel=True), turn) == (["a", "b", "c"], pytest.approx(3))


def test_a_call_that_is_not_parallel_waits_for_those_before_it_and_holds_those_behind():
    """a and b take 3 s together, then write 2 s, then b and a again 3 s."""
    tools, log = timed({"a": 3, "b": 1, "write": 2})
    answers, seconds = seconds_of_a_turn(ToolEnv(tools, parallel=("a", "b")), asking("a", "b", "write", "b", "a"))
    assert (answers, seconds) == (["a", "b", "write", "b", "a"], pytest.approx(8))
    begun = [name for name, what, _ in log if what == "begins"]
    assert begun == ["a", "b", "write", "b", "a"]


def test_one_broken_tool_ends_its_neighbours_and_is_raised_alone():
    ended = []

    async def hang() -> None:
        """Hang."""
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("hang")

    async def down() -> None:
        """Be down."""
        raise BrokenToolError("no connection")

    env = ToolEnv([FunctionTool(hang), FunctionTool(down)], parallel=True)
    with pytest.raises(BrokenToolError, match="no connection"):
        play(env, asking("hang", "down", "hang"))
    assert ended == ["hang", "hang"]


def test_a_turn_that_is_cancelled_leaves_no_call_behind():
    begun, ended = asyncio.Semaphore(0), []

    async def hang() -> None:
        """Hang."""
        begun.release()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(1)

    async def run():
        env = ToolEnv([FunctionTool(hang)], parallel=True)
        await env.reset(TASK, KEY)
        task = asyncio.create_task(env.step(asking("hang", "hang")))
        await begun.acquire()
        await begun.acquire()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(run()) == set()
    assert ended == [1, 1]


class Counting:
    """Counts its calls."""

    def __init__(self):
        self._count = 0

    async def count(self) -> int:
        """Count."""
        self._count += 1
        return self._count


def test_a_toolset_is_opened_by_reset_and_closed_by_close_and_by_the_next_reset():
    open_now = []

    class Watched(MethodTools):
        @asynccontextmanager
        async def open(self, key):
            open_now.append(key)
            async with super().open(key) as tools:
                yield tools
            open_now.remove(key)

    async def run():
        env = ToolEnv([calculator_tool(), Watched(Counting)])
        told = []
        for key in ((0, 0, 0, 0), (0, 0, 0, 1)):
            opening = await env.reset(TASK, key)
            assert open_now == [key]
            assert [tool.name for tool in opening.tools] == ["calculator", "count"]
            for _ in range(2):
                told.append((await env.step(asking("count"))).messages[0].content)
        await env.close()
        await env.close()
        return told

    assert asyncio.run(run()) == ["1", "2", "1", "2"]
    assert open_now == []


def test_a_toolset_is_closed_though_a_later_one_could_not_be_opened():
    """S31."""
    closed = []

    class Closing(Counting):
        def close(self):
            closed.append(1)

    def fail():
        raise OSError("no room")

    async def run():
        env = ToolEnv([MethodTools(Closing), MethodTools(fail, of=Counting)])
        with pytest.raises(OSError, match="no room"):
            await env.reset(TASK, KEY)
        await env.close()

    asyncio.run(run())
    assert closed == [1]


def test_a_call_beside_too_many_invalid_ones_has_its_answer_and_later_ones_are_not_executed():
    ran = []

    async def act() -> str:
        """Act."""
        ran.append(1)
        return "acted"

    turn = Message(
        "assistant", "", (*asking("act").calls, *(BadCall(f"b{i}", "no") for i in range(3)), ToolCall("c4", "act", {}))
    )
    _, (reply,) = play(ToolEnv([FunctionTool(act)], max_invalid=3), turn)
    assert [message.content for message in reply.messages] == [
        "acted", *["error: no"] * 3, "error: not executed: 3 invalid calls in a row",
    ]  # fmt: skip
    assert (reply.end, ran) == (Status.TRUNCATED_TURNS, [1])
