import asyncio
import threading
import time

import anyio
import pytest

from stages.tools.function import FunctionTool
from stages.tools.tool import BrokenToolError


def call(tool, **arguments):
    return asyncio.run(tool.call(arguments, (0, 0)))


def add(a: int, b: int = 1) -> int:
    """Add two numbers.

    More for people.

    Args:
        a: the first,
            told over two lines.
        b (int): the second.

    Returns:
        Their sum.
    """
    return a + b


def test_the_schema_comes_from_the_signature_and_the_docstring():
    tool = FunctionTool(add)
    assert (tool.name, tool.description) == ("add", "Add two numbers.")
    assert tool.parameters == {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "a": {"type": "integer", "description": "the first, told over two lines."},
            "b": {"type": "integer", "description": "the second.", "default": 1},
        },
        "required": ["a"],
    }


def test_a_default_is_filled_in():
    assert call(FunctionTool(add), a=2) == call(FunctionTool(add), a=2, b=1)
    assert call(FunctionTool(add), a=2, b=5).text == "7"


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({}, "a: Field required"),
        ({"a": "2"}, "a: Input should be a valid integer"),
        ({"a": None}, "a: Input should be a valid integer"),
        ({"a": 1, "c": 2}, "c: Extra inputs are not permitted"),
    ],
)
def test_arguments_that_do_not_fit_are_answered_and_never_executed(arguments, fault):
    """S52."""
    ran = []

    def record(a: int) -> None:
        """Record."""
        ran.append(a)

    answer = call(FunctionTool(record), **arguments)
    assert answer.outcome == "invalid"
    assert answer.text.startswith(f"error: {fault}")
    assert ran == []


def test_json_lists_and_nested_values_fit_their_python_types():
    def total(pairs: list[tuple[str, float]]) -> float:
        """Add up."""
        return sum(value for _, value in pairs)

    assert call(FunctionTool(total), pairs=[["a", 1], ["b", 2.5]]).text == "3.5"


def test_an_exception_is_an_answer():
    def fail() -> None:
        """Fail."""
        raise KeyError("no such page")

    answer = call(FunctionTool(fail))
    assert (answer.text, answer.outcome) == ("error: 'no such page'", "failed")


def test_a_broken_tool_is_not_an_answer():
    def down() -> None:
        """Be down."""
        raise BrokenToolError("no connection")

    with pytest.raises(BrokenToolError, match="no connection"):
        call(FunctionTool(down))


def test_a_cancellation_nobody_asked_for_is_an_answer_and_a_real_one_is_not():
    """S9."""

    async def cancelled() -> None:
        """Give up."""
        raise asyncio.CancelledError

    async def wait() -> None:
        """Wait for ever."""
        await anyio.sleep_forever()

    assert call(FunctionTool(cancelled)).text == "error: the call was cancelled"

    async def cancel_from_outside():
        task = asyncio.create_task(FunctionTool(wait).call({}, (0,)))
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancel_from_outside())


def test_a_scope_of_the_caller_is_not_mistaken_for_a_failure_of_the_tool():
    async def wait() -> None:
        """Wait for ever."""
        await anyio.sleep_forever()

    async def limited():
        with anyio.move_on_after(0.01) as scope:
            await FunctionTool(wait).call({}, (0,))
        return scope.cancelled_caught

    assert asyncio.run(limited())


def test_a_deadline_is_an_answer():
    async def wait() -> None:
        """Wait for ever."""
        await anyio.sleep_forever()

    answer = call(FunctionTool(wait, deadline_s=0.01))
    assert (answer.text, answer.outcome) == ("error: no answer within 0.01 s", "failed")


def test_plain_functions_run_beside_the_loop_and_beside_each_other():
    """S24: eight calls that block 40 ms take about 40 ms, and the loop goes on ticking."""
    together = threading.Barrier(8)

    def block() -> str:
        """Block until eight are here."""
        together.wait(timeout=5)
        time.sleep(0.04)
        return "done"

    async def run():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.002)
                ticks += 1

        ticker = asyncio.create_task(tick())
        answers = await asyncio.gather(*(FunctionTool(block).call({}, (0,)) for _ in range(8)))
        ticker.cancel()
        return answers, ticks

    answers, ticks = asyncio.run(run())
    assert [answer.text for answer in answers] == ["done"] * 8
    assert ticks >= 3


def test_256_plain_calls_run_at_once():
    """S24: no call waits for a thread that another one holds, however many of the program's common threads are taken."""
    together = threading.Barrier(256)

    def block() -> str:
        """Block until all are here."""
        together.wait(timeout=5)
        return "done"

    async def run():
        tool = FunctionTool(block, deadline_s=5)
        return await asyncio.gather(*(tool.call({}, (0,)) for _ in range(256)))

    assert [answer.text for answer in asyncio.run(run())] == ["done"] * 256


def test_waiting_for_a_thread_does_not_count_against_the_deadline():
    """S24: one thread, eight calls of 40 ms, a deadline of 200 ms: the last one begins after 280 ms and still answers."""

    def block() -> str:
        """Block for 40 ms."""
        time.sleep(0.04)
        return "done"

    async def run():
        tool = FunctionTool(block, deadline_s=0.2, max_threads=1)
        started = time.monotonic()
        answers = await asyncio.gather(*(tool.call({}, (0,)) for _ in range(8)))
        return answers, time.monotonic() - started

    answers, seconds = asyncio.run(run())
    assert [answer.text for answer in answers] == ["done"] * 8
    assert seconds >= 8 * 0.04


def test_answers_are_bounded_in_characters():
    """S38: the unit is in the name."""

    def shout(times: int) -> str:
        """Shout."""
        return "A" * times

    tool = FunctionTool(shout, max_output_chars=50)
    assert call(tool, times=50).text == "A" * 50
    cut = call(tool, times=10_000).text
    assert len(cut) == 50
    assert cut.endswith("A [cut: 10000 characters]")
    assert len(call(FunctionTool(shout, max_output_chars=5), times=99).text) == 5


def test_a_function_the_model_could_not_be_told_of_is_refused():
    def untold(a: int) -> int:
        return a

    def untyped(a):
        """Add."""

    def variadic(*a: int):
        """Add."""

    with pytest.raises(TypeError, match=r"expected a docstring.* in tool untold; write one"):
        FunctionTool(untold)
    with pytest.raises(TypeError, match="expected named parameters with annotations; got a, in tool untyped"):
        FunctionTool(untyped)
    with pytest.raises(TypeError, match=r"got \*a: int, in tool variadic"):
        FunctionTool(variadic)
