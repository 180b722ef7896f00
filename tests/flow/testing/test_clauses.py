"""Clauses that an undisturbed run shows: each finds a stage that breaks only that one."""

import asyncio
import contextlib

import pytest
from hypothesis import strategies as st

from flow import Context, Filtered, Many
from flow.testing import check_stage

NUMBERS = st.integers(0, 5)


def test_a_stage_that_waits_for_ever_is_found(report):
    async def waits(number: int, context: Context) -> int:
        return await asyncio.get_running_loop().create_future() if number == 4 else number

    text = report(waits)
    assert text.clause == "returns"
    assert "     input     4\n" in text
    assert "every task waits and no timer is set" in text


def test_an_error_that_is_not_declared_is_found_with_its_cause():
    async def divides(number: int, context: Context) -> float:
        return 1 / number

    with pytest.raises(AssertionError, match="raises") as caught:
        check_stage(divides, NUMBERS, examples=20)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert "     input     0\n" in str(caught.value)
    check_stage(divides, NUMBERS, examples=20, raises=(ZeroDivisionError,))


def test_an_output_of_another_type_is_found(report):
    async def mixed(number: int, context: Context) -> int:
        return str(number) if number > 2 else number

    text = report(mixed)
    assert text.clause == "types"
    assert "got       '3', a str" in text
    assert "expected  int" in text

    async def unhinted(number, context):
        return str(number)

    check_stage(unhinted, NUMBERS, examples=5)
    assert report(unhinted, outputs=int).clause == "types"


def test_a_stage_that_yields_is_found_with_what_to_return(report):
    async def streams(number: int, context: Context):
        yield number

    def yields(number: int, context: Context):
        yield number

    for stage, got in ((streams, "an async generator"), (yields, "a generator")):
        text = report(stage)
        assert text.clause == "types"
        assert f"got       {got}\n     to do     give what it yields as one result: return Many([...])" in text


def test_more_or_fewer_outputs_than_hinted_are_found(report):
    async def drops(number: int, context: Context) -> int:
        return Filtered("two") if number == 2 else number

    text = report(drops)
    assert text.clause == "outputs per input"
    assert "     input     2\n     expected  1\n     got       0: Filtered(reason='two')" in text

    async def several(number: int, context: Context) -> Many[int]:
        return Many([number] * number)

    check_stage(several, NUMBERS, examples=20, per_input=(0, 5))
    assert "expected  from 0 to 3" in report(several, per_input=(0, 3))


def test_a_task_that_outlives_its_attempt_is_found(report):
    tasks = []

    async def forgets(number: int, context: Context) -> int:
        tasks.append(asyncio.create_task(asyncio.sleep(0.1)))
        return number

    text = report(forgets)
    assert text.clause == "no task left"
    assert "when the attempt had ended, these went on: sleep" in text


class Holds:
    """A stage with a task in the background, which it ends by asking it to."""

    def __init__(self, close) -> None:
        self.close = close

    async def __aenter__(self):
        self.task = asyncio.create_task(self.beat(), name="beat")

    async def __aexit__(self, kind, error, trace):
        return await self.close(self, kind)

    async def beat(self):
        await asyncio.sleep(10**5 - 1)

    async def __call__(self, number: int, context: Context) -> int:
        return number

    async def end(self):
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


async def closes(stage, kind):
    await stage.end()


async def forgets_after_an_error(stage, kind):
    if kind is None:
        await stage.end()


async def swallows(stage, kind):
    await stage.end()
    return True


async def fails(stage, kind):
    await stage.end()
    raise OSError("already closed")


def test_a_stage_that_closes_what_it_holds_passes():
    check_stage(lambda: Holds(closes), NUMBERS, examples=10)


@pytest.mark.parametrize(
    ("close", "shown"),
    [
        (forgets_after_an_error, "after a run that ended with an error, the task Holds.beat going on"),
        (swallows, "after a run that ended with an error, the error of the run kept from going on"),
        (fails, "after a run that completed, OSError: already closed"),
    ],
)
def test_a_stage_that_closes_badly_is_found(close, shown, report):
    text = report(lambda: Holds(close))
    assert text.clause == "closed once"
    assert shown in text


def test_a_file_left_open_is_found(tmp_path, report):
    (tmp_path / "log").touch()
    kept = []

    class Opens(Holds):
        async def __aenter__(self):
            self.file = (tmp_path / "log").open()
            kept.append(self.file)

        async def __aexit__(self, *error):
            if error[0] is not None:
                self.file.close()

    text = report(lambda: Opens(None))
    for file in kept:
        file.close()
    assert text.clause == "closed once"
    assert "1 more open files than before" in text
