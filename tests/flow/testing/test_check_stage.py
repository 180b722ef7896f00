"""What ``check_stage`` takes and tells. The clauses have their tests in ``test_clauses.py`` and ``test_disturbed.py``."""

import asyncio
import time

import pytest
from hypothesis import strategies as st

from flow import Context, Failed, Filtered, Many
from flow.testing import check_stage

NUMBERS = st.integers(0, 5)


def test_stages_of_every_shape_pass():
    async def awaits(number: int, context: Context) -> int | Filtered:
        await asyncio.sleep(0.5)
        async with context.permit("seats"):
            await asyncio.sleep(0)
        return number * context.read().value if number % 3 else Filtered("thrice")

    def plain(number: int, context: Context) -> str:
        return str(number)

    async def several(number: int, context: Context) -> Many[int]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(asyncio.sleep(1, result=index)) for index in range(number)]
        return Many([task.result() for task in tasks])

    async def marks(number: int, context: Context) -> int | Failed[int]:
        return Failed(number, "odd") if number % 2 else number

    check_stage(awaits, NUMBERS, examples=20, reads=3, pools={"seats": 1})
    check_stage(plain, NUMBERS, examples=20)
    check_stage(several, NUMBERS, examples=20)
    check_stage(marks, NUMBERS, examples=20)


def test_no_input_is_no_test():
    with pytest.raises(ValueError, match="expected at least one input, got an empty list"):
        check_stage(lambda number, context: number, [])


def test_the_report_names_clause_place_smallest_input_expected_got_and_remedy(report):
    async def grows(numbers: list, context: Context) -> int:
        numbers.append(0)
        return sum(numbers)

    first, *rest = report(grows, st.lists(NUMBERS)).splitlines()
    assert first.startswith("stage grows breaks its contract: input untouched  (test_check_stage.py:")
    assert rest == [
        "     input     []",
        "     expected  still []",
        "     got       after the stage ran the input was [0]",
        "     to do     work on a copy: the engine gives the same object to the next attempt, and to whoever else holds it",
    ]


def test_a_stage_that_holds_the_loop_is_found_with_how_long(report):
    async def computes(number: int, context: Context) -> int:
        await asyncio.sleep(0)
        time.sleep(0.02)  # noqa: ASYNC251 - that is the fault
        return number

    text = report(computes, [1], max_block_s=0.01)
    assert text.clause == "blocks"
    assert 20 <= int(text.split("loop for ")[1].split(" ms")[0]) < 1000
    check_stage(computes, [1], max_block_s=None)


def test_a_list_of_inputs_needs_no_hypothesis(monkeypatch, report):
    import sys

    monkeypatch.setitem(sys.modules, "hypothesis", None)

    async def odd(number: int, context: Context) -> int:
        if number == 3:
            raise ValueError("three")
        return number

    check_stage(odd, [1, 2])
    assert "     input     3\n" in report(odd, [1, 2, 3])


def test_a_stage_that_fails_only_now_and_then_is_told_as_such(report):
    runs = iter(range(10**6))

    async def moody(number: int, context: Context) -> int:
        if next(runs) == 0:
            raise ValueError("moody")
        return number

    assert "got       once, and not again: ValueError: moody" in report(moody)


def test_a_stage_that_cannot_be_copied_is_refused():
    class Locked:
        def __init__(self):
            self.numbers = (number for number in range(3))

        async def __call__(self, number: int, context: Context) -> int:
            return number

    with pytest.raises(TypeError, match=r"expected a stage that can be copied, got Locked.*pass a function that makes one"):
        check_stage(Locked(), NUMBERS)
    check_stage(lambda: Locked(), NUMBERS, examples=3)
