"""Clauses that take a second run to see: each finds a stage that breaks only that one."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import strategies as st

from flow import Context, Filtered
from flow.testing import check_stage

NUMBERS = st.integers(0, 5)


def test_an_input_that_only_a_cancelled_attempt_changes_is_found(report):
    async def halfway(numbers: list, context: Context) -> int:
        numbers.append(0)
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            raise
        numbers.pop()
        return sum(numbers)

    text = report(halfway, st.lists(NUMBERS))
    assert text.clause == "input untouched"
    assert "cancelled at await 1, while it waited" in text


def test_a_task_that_only_a_cancel_leaves_behind_is_found(report):
    async def shields(number: int, context: Context) -> int:
        return await asyncio.shield(asyncio.create_task(asyncio.sleep(0.1, result=number)))

    text = report(shields)
    assert text.clause == "no task left"
    assert "when the attempt was cancelled" in text


def test_a_value_that_depends_on_the_attempt_is_found(report):
    async def counts(number: int, context: Context) -> int:
        return number + context.attempt

    text = report(counts)
    assert text.clause == "repeatable"
    assert "got       a second attempt at it gave, for input 0: 1" in text
    check_stage(counts, NUMBERS, examples=10, idempotent=False)


def test_a_cache_that_a_first_attempt_filled_is_found(report):
    class Once:
        def __init__(self):
            self.seen = set()

        async def __call__(self, number: int, context: Context) -> int | Filtered:
            if context.path in self.seen:
                return Filtered("seen")
            self.seen.add(context.path)
            return number

    text = report(Once)
    assert text.clause == "repeatable"
    assert "for input 0: nothing" in text
    assert report(Once, idempotent=False).clause == "repeatable"


class Sums:
    """Carries something from one input to the next, as few stages may."""

    def __init__(self):
        self.total, self.last = 0, None

    async def __call__(self, number: int, context: Context) -> int:
        if context.path != self.last:
            self.last, self.total = context.path, self.total + number
        return self.total


def test_an_output_that_depends_on_the_order_of_inputs_is_found(report):
    text = report(Sums)
    assert text.clause == "independent"
    assert "     inputs    [0, 1]\n" in text
    check_stage(Sums, NUMBERS, examples=10, keep_order=True)


def test_an_element_that_a_cancel_loses_is_found(report):
    class Lends:
        def __init__(self):
            self.seats = ["only"]

        async def __call__(self, number: int, context: Context) -> str:
            seat = self.seats.pop()
            await asyncio.sleep(1)
            self.seats.append(seat)
            return seat

    text = report(Lends)
    assert text.clause == "cancellation"
    assert "cancelled at await 1, while it waited; then it gave, for input 0: IndexError: pop from empty list" in text


def test_an_element_that_only_a_cancel_after_its_wake_up_loses_is_found(report):
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
    assert text.clause == "cancellation"
    assert "just woken from it" in text


def test_a_stage_that_swallows_a_cancel_is_found(report):
    async def deaf(number: int, context: Context) -> int:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(1)
        return number

    text = report(deaf)
    assert text.clause == "hears a cancel"
    assert "while it waited, it went on and gave 0" in text


def test_a_stage_that_turns_a_cancel_into_an_error_is_found(report):
    async def converts(number: int, context: Context) -> int:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            raise ValueError("interrupted") from None
        return number

    text = report(converts, raises=(ValueError,))
    assert text.clause == "hears a cancel"
    assert "it raised ValueError: interrupted instead" in text


def test_a_stage_that_takes_long_to_end_is_found(report):
    async def tidies(number: int, context: Context) -> int:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            await asyncio.sleep(5)
            raise
        return number

    text = report(tidies)
    assert text.clause == "hears a cancel"
    assert "it took 5 s more" in text
    check_stage(tidies, NUMBERS, examples=10, cancel_within_s=5.0)


class Seen(msgspec.Struct):
    """State of a stage that counts."""

    last: int
    paths: list[tuple[int, ...]]


class Counts:
    """A stage with a state: how many it has seen, and of what it has seen the last."""

    def __init__(self, restored=("last", "paths")):
        self.paths, self.last, self.restored = [], 0, restored

    async def __call__(self, number: int, context: Context) -> tuple[int, int]:
        if context.path not in self.paths:
            self.paths.append(context.path)
            self.last = number
        return self.last, len(self.paths)

    def state(self) -> Seen:
        return Seen(self.last, self.paths)

    def restore(self, state: Seen) -> None:
        for name in self.restored:
            setattr(self, name, getattr(state, name))


class Keeps(Counts):
    """One that keeps the paths in a file, the better for being taken at once."""

    def __init__(self, late=False, forgets=False):
        super().__init__(restored=("last",))
        self.late, self.forgets = late, forgets

    def state(self) -> Seen:
        return Seen(self.last, [])

    def save(self, folder: Path) -> Callable[[], None]:
        taken = self.paths if self.late else list(self.paths)

        def write() -> None:
            folder.mkdir()
            (folder / "paths").write_bytes(msgspec.json.encode(taken))

        return write

    def load(self, folder: Path) -> None:
        if not self.forgets:
            self.paths = msgspec.json.decode((folder / "paths").read_bytes(), type=list[tuple[int, ...]])


def test_a_stage_whose_restored_state_equals_never_stopped_passes():
    """P6."""
    check_stage(Counts, NUMBERS, examples=10, keep_order=True)
    check_stage(Keeps, NUMBERS, examples=10, keep_order=True)


def test_a_state_that_is_not_all_restored_is_found(report):
    text = report(lambda: Counts(restored=("last",)), keep_order=True)
    assert text.clause == "state"
    assert "stopped after 1 of 1 inputs" in text


@pytest.mark.parametrize("fault", ["late", "forgets"])
def test_what_is_saved_beside_the_state_is_restored_too_and_as_it_was_when_it_was_taken(report, fault):
    text = report(lambda: Keeps(**{fault: True}), keep_order=True)
    assert text.clause == "state"
    assert "restored into a new stage" in text


def test_a_state_that_no_file_can_hold_as_it_is_declared_is_found(report):
    class Untold(Counts):
        def state(self):
            return 0

        def restore(self, state): ...

    class Lies(Counts):
        def state(self) -> list[int]:
            return ["text"]

    text = report(Untold, keep_order=True)
    assert text.clause == "state"
    assert "expected  a declared type, to be saved" in text
    assert "got       of state(): anything (untyped)" in text
    assert "got       of state(): Expected `int`, got `str`" in report(Lies, keep_order=True)
