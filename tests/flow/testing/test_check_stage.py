"""Each clause finds a stage that breaks only that one; stages that keep them all pass, and the report is whole."""

import asyncio
import contextlib
import time

import pytest
from hypothesis import strategies as st

from flow import Context, Failed, Filtered, Many
from flow.testing import check_stage

NUMBERS = st.integers(0, 5)


def report(stage, inputs=NUMBERS, **settings) -> str:
    with pytest.raises(AssertionError) as caught:
        check_stage(stage, inputs, examples=20, **settings)
    return str(caught.value)


def clause(text: str) -> str:
    return text.splitlines()[0].split(": ")[1].split("  ")[0]


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


def test_the_report_names_clause_place_smallest_input_expected_got_and_remedy():
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


def test_an_input_that_only_a_cancelled_attempt_changes_is_found():
    async def halfway(numbers: list, context: Context) -> int:
        numbers.append(0)
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            raise
        numbers.pop()
        return sum(numbers)

    text = report(halfway, st.lists(NUMBERS))
    assert clause(text) == "input untouched"
    assert "cancelled at await 1, while it waited" in text


def test_a_stage_that_waits_for_ever_is_found():
    async def waits(number: int, context: Context) -> int:
        return await asyncio.get_running_loop().create_future() if number == 4 else number

    text = report(waits)
    assert clause(text) == "returns"
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


def test_an_output_of_another_type_is_found():
    async def mixed(number: int, context: Context) -> int:
        return str(number) if number > 2 else number

    text = report(mixed)
    assert clause(text) == "types"
    assert "got       '3', a str" in text
    assert "expected  int" in text

    async def unhinted(number, context):
        return str(number)

    check_stage(unhinted, NUMBERS, examples=5)
    assert clause(report(unhinted, outputs=int)) == "types"


def test_more_or_fewer_outputs_than_hinted_are_found():
    async def drops(number: int, context: Context) -> int:
        return Filtered("two") if number == 2 else number

    text = report(drops)
    assert clause(text) == "outputs per input"
    assert "     input     2\n     expected  1\n     got       0: Filtered(reason='two')" in text

    async def several(number: int, context: Context) -> Many[int]:
        return Many([number] * number)

    check_stage(several, NUMBERS, examples=20, per_input=(0, 5))
    assert "expected  from 0 to 3" in report(several, per_input=(0, 3))


def test_a_task_that_outlives_its_attempt_is_found():
    tasks = []

    async def forgets(number: int, context: Context) -> int:
        tasks.append(asyncio.create_task(asyncio.sleep(0.1)))
        return number

    text = report(forgets)
    assert clause(text) == "no task left"
    assert "when the attempt had ended, these went on: sleep" in text


def test_a_task_that_only_a_cancel_leaves_behind_is_found():
    async def shields(number: int, context: Context) -> int:
        return await asyncio.shield(asyncio.create_task(asyncio.sleep(0.1, result=number)))

    text = report(shields)
    assert clause(text) == "no task left"
    assert "when the attempt was cancelled" in text


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
def test_a_stage_that_closes_badly_is_found(close, shown):
    text = report(lambda: Holds(close))
    assert clause(text) == "closed once"
    assert shown in text


def test_a_file_left_open_is_found(tmp_path):
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
    assert clause(text) == "closed once"
    assert "1 more open files than before" in text


def test_a_value_that_depends_on_the_attempt_is_found():
    async def counts(number: int, context: Context) -> int:
        return number + context.attempt

    text = report(counts)
    assert clause(text) == "repeatable"
    assert "got       a second attempt at it gave, for input 0: 1" in text
    check_stage(counts, NUMBERS, examples=10, idempotent=False)


def test_a_cache_that_a_first_attempt_filled_is_found():
    class Once:
        def __init__(self):
            self.seen = set()

        async def __call__(self, number: int, context: Context) -> int | Filtered:
            if context.path in self.seen:
                return Filtered("seen")
            self.seen.add(context.path)
            return number

    text = report(Once)
    assert clause(text) == "repeatable"
    assert "for input 0: nothing" in text
    assert clause(report(Once, idempotent=False)) == "repeatable"


class Sums:
    """Carries something from one input to the next, as few stages may."""

    def __init__(self):
        self.total, self.last = 0, None

    async def __call__(self, number: int, context: Context) -> int:
        if context.path != self.last:
            self.last, self.total = context.path, self.total + number
        return self.total


def test_an_output_that_depends_on_the_order_of_inputs_is_found():
    text = report(Sums)
    assert clause(text) == "independent"
    assert "     inputs    [0, 1]\n" in text
    check_stage(Sums, NUMBERS, examples=10, keep_order=True)


def test_an_element_that_a_cancel_loses_is_found():
    class Lends:
        def __init__(self):
            self.seats = ["only"]

        async def __call__(self, number: int, context: Context) -> str:
            seat = self.seats.pop()
            await asyncio.sleep(1)
            self.seats.append(seat)
            return seat

    text = report(Lends)
    assert clause(text) == "cancellation"
    assert "cancelled at await 1, while it waited; then it gave, for input 0: IndexError: pop from empty list" in text


def test_an_element_that_only_a_cancel_after_its_wake_up_loses_is_found():
    """C3: a queue of one's own, whose getter has been handed the element already."""

    class Hands:
        def __init__(self):
            self.elements = [1]

        def fetch(self, future):
            if not future.done():
                future.set_result(self.elements.pop() if self.elements else None)

        async def __call__(self, number: int, context: Context) -> int | None:
            future = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_later(1, self.fetch, future)
            got = await future
            self.elements.append(got)
            return got

    text = report(Hands)
    assert clause(text) == "cancellation"
    assert "just woken from it" in text


def test_a_stage_that_swallows_a_cancel_is_found():
    async def deaf(number: int, context: Context) -> int:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(1)
        return number

    text = report(deaf)
    assert clause(text) == "hears a cancel"
    assert "while it waited, it went on and gave 0" in text


def test_a_stage_that_turns_a_cancel_into_an_error_is_found():
    async def converts(number: int, context: Context) -> int:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            raise ValueError("interrupted") from None
        return number

    text = report(converts, raises=(ValueError,))
    assert clause(text) == "hears a cancel"
    assert "it raised ValueError: interrupted instead" in text


def test_a_stage_that_takes_long_to_end_is_found():
    async def tidies(number: int, context: Context) -> int:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            await asyncio.sleep(5)
            raise
        return number

    text = report(tidies)
    assert clause(text) == "hears a cancel"
    assert "it took 5 s more" in text
    check_stage(tidies, NUMBERS, examples=10, cancel_within_s=5.0)


class Counts:
    """A stage with a state: how many it has seen, and of what it has seen the last."""

    def __init__(self, restored=("last", "paths"), live=False):
        self.paths, self.last, self.restored, self.live = [], 0, restored, live

    async def __call__(self, number: int, context: Context) -> tuple[int, int]:
        if context.path not in self.paths:
            self.paths.append(context.path)
            self.last = number
        return self.last, len(self.paths)

    def state(self):
        return {"last": self.last, "paths": self.paths if self.live else list(self.paths)}

    def restore(self, state):
        for name in self.restored:
            setattr(self, name, state[name])


def test_a_stage_whose_restored_state_equals_never_stopped_passes():
    check_stage(Counts, NUMBERS, examples=10, keep_order=True)


def test_a_state_that_is_not_all_restored_is_found():
    text = report(lambda: Counts(restored=("last",)), keep_order=True)
    assert clause(text) == "state"
    assert "stopped after 1 of 1 inputs" in text


def test_a_state_that_is_not_a_copy_is_found():
    text = report(lambda: Counts(live=True), keep_order=True)
    assert clause(text) == "state"
    assert "changed by later work" in text


def test_a_stage_that_holds_the_loop_is_found_with_how_long():
    async def computes(number: int, context: Context) -> int:
        await asyncio.sleep(0)
        time.sleep(0.02)  # noqa: ASYNC251 - that is the fault
        return number

    text = report(computes, [1], max_block_s=0.01)
    assert clause(text) == "blocks"
    assert 20 <= int(text.split("loop for ")[1].split(" ms")[0]) < 1000
    check_stage(computes, [1], max_block_s=None)


def test_a_list_of_inputs_needs_no_hypothesis(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "hypothesis", None)

    async def odd(number: int, context: Context) -> int:
        if number == 3:
            raise ValueError("three")
        return number

    check_stage(odd, [1, 2])
    assert "     input     3\n" in report(odd, [1, 2, 3])


def test_a_stage_that_fails_only_now_and_then_is_told_as_such():
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
