"""Clauses of a stage's contract that take a second run to see: one with cancels, another order, or a restored state."""

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from .._codec import Codec
from .._types import hints_of
from ..saving._declared import Resumable, Saves
from ._attempt import Attempt
from ._clauses import no_task_left, untouched
from ._context import context
from ._contract import Broken, Subject, broken, listed, one, short, told
from ._loop import run_virtual
from ._same import same
from ._trial import Cut, Raised, Trial

MOST_CUTS = 12
"""Cancels tried for one list of inputs: the first awaits, the last, and some between."""


def repeatable(subject: Subject, calm: Trial) -> None:
    """A second attempt gives the same."""
    again = subject.trial(calm.before, cut=Cut(None, None))
    _same_outputs(
        "repeatable",
        subject,
        calm,
        again,
        "a second attempt at it gave",
        "draw from context.path and context.retry, never from context.attempt, a clock or a generator of your own, and keep "
        "nothing that a first attempt changes; or say idempotent=False",
    )
    untouched(again, "a second attempt")


def independent(subject: Subject, calm: Trial) -> None:
    """The order of the inputs does not matter."""
    if subject.keep_order or len(calm.before) < 2:
        return
    order = list(range(len(calm.before)))[::-1]
    _same_outputs(
        "independent",
        subject,
        calm,
        subject.trial(calm.before, order=order),
        "with the inputs in reverse order it gave",
        "keep nothing from one input to the next, since workers run side by side; or say keep_order=True, and give the node "
        "one worker",
    )


def survives_cancels(subject: Subject, calm: Trial) -> None:
    """A cancel is heard, and what comes after it is as if it had not been."""
    places = [(index, at) for index in range(len(calm.before)) for at in range(1, calm.first(index).awaits + 1)]
    if len(places) > MOST_CUTS // 2:
        step = (len(places) - 1) / (MOST_CUTS // 2 - 1)
        places = [places[round(number * step)] for number in range(MOST_CUTS // 2)]
    for index, at in places:
        for woken in (False, True):
            cut = Cut(index, at, woken)
            trial = subject.trial(calm.before, cut=cut)
            first = next((attempt for attempt in trial.attempts if attempt.index == index), None)
            if first is None or first.cut_at_s is None:
                continue  # it took another way this time; the clause of repetition speaks of that
            _hears_the_cancel(subject, trial, first, cut)
            untouched(trial, f"an attempt at it was {cut}")
            no_task_left(trial)
            _same_outputs(
                "cancellation",
                subject,
                calm,
                trial,
                f"the first attempt at input {index} was {cut}; then it gave",
                "put back in a finally what was taken, and change nothing of the stage's own before the last await",
            )


def _hears_the_cancel(subject: Subject, trial: Trial, first: Attempt, cut: Cut) -> None:
    assert first.cut_at_s is not None
    took_s = first.ended_at_s - first.cut_at_s
    got = ""
    if trial.error is not None and all(a is first or a.index != first.index for a in trial.attempts):
        got = f"it did not end: {told(trial.error)}"
    elif first.ended == "result":
        got = f"it went on and gave {short(first.result)}"
    elif first.ended == "error":
        got = f"it raised {told(first.error)} instead"
    elif took_s > subject.cancel_within_s:
        got = f"it took {took_s:g} s more"
    if got:
        raise broken(
            "hears a cancel",
            one(trial, first),
            got=f"{cut}, {got}",
            expected=f"CancelledError goes on within {subject.cancel_within_s:g} s",
            remedy="catch CancelledError only to clean up, then raise it; shield only what ends soon",
            cause=first.error if first.ended == "error" else trial.error,
        )


def restores(subject: Subject, values: Sequence[Any]) -> None:
    """Restored from what a file can hold, by a new stage, equals never stopped."""
    stage = subject.make()
    if not isinstance(stage, Resumable):
        return

    def refuse(expected: str, got: str, remedy: str) -> Broken:
        return broken("state", values, got=f"of state(): {got}", expected=f"{expected}, to be saved", remedy=remedy)

    codec = Codec(hints_of(stage.state)[1], refuse)
    for stop in range(len(values) + 1):
        with TemporaryDirectory() as folder:
            saved = Path(folder) / "saved"
            stopped, never = run_virtual(_stop_and_go_on(subject, values, stop, codec, saved), deadline_s=1e6)
        if not same(stopped, never):
            raise broken(
                "state",
                values,
                got=f"stopped after {stop} of {len(values)} inputs and restored into a new stage: {short(stopped)}",
                expected=f"outputs and state as if never stopped, {short(never)}",
                remedy="give all that later outputs depend on in state() or save(folder), and take it over in restore and load",
            )


async def _stop_and_go_on(subject: Subject, values: Sequence[Any], stop: int, codec: Codec, folder: Path) -> tuple[Any, Any]:
    """Results and last state of a stage that was restored, and of the one it was restored from."""
    inputs, first, second = copy.deepcopy(list(values)), subject.make(), subject.make()
    async with _opened(first):
        for index in range(stop):
            await _call(subject, first, index, inputs[index])
        taken = codec.encode(first.state())
        write = _write_of(first, folder)
        again = copy.deepcopy(inputs)
        never = [await _call(subject, first, index, inputs[index]) for index in range(stop, len(inputs))]
        if write is not None:
            write()  # so late, since what is written may change meanwhile
        async with _opened(second):
            if write is not None:
                second.load(folder)
            second.restore(codec.decode(taken))
            stopped = [await _call(subject, second, index, again[index]) for index in range(stop, len(inputs))]
            states = [codec.decode(codec.encode(stage.state())) for stage in (second, first)]
            return (stopped, states[0]), (never, states[1])


def _write_of(stage: object, folder: Path) -> Callable[[], None] | None:
    return stage.save(folder) if isinstance(stage, Saves) else None


def _opened(stage: Any) -> AbstractAsyncContextManager[Any]:
    """The stage to open where it holds something; of others, nothing."""
    return cast("AbstractAsyncContextManager[Any]", stage) if isinstance(stage, AbstractAsyncContextManager) else nullcontext()


async def _call(subject: Subject, stage: Any, index: int, value: Any) -> Any:
    try:
        result = stage(value, context(node="stage", path=(index,), birth=index, value=subject.reads))
        return await result if hasattr(result, "__await__") else result
    except subject.raises as error:
        return Raised(type(error).__name__)


def _same_outputs(clause: str, subject: Subject, calm: Trial, other: Trial, got: str, remedy: str) -> None:
    """Nothing lost, nothing doubled, and the same values where the stage repeats itself."""
    if other.error is not None:
        expected = "an end of the run, and the outputs of an undisturbed one"
        raise broken(
            clause, calm.before, got=f"{got}: {told(other.error)}", expected=expected, remedy=remedy, cause=other.error
        )
    for index in range(len(calm.before)):
        want, have = calm.outputs[index], other.outputs[index]
        if len(want) == len(have) and (not subject.idempotent or same(want, have)):
            continue
        error = next((a.error for a in other.attempts if a.index == index and a.ended == "error"), None)
        raise broken(
            clause,
            calm.before,
            got=f"{got}, for input {index}: {told(error) if error is not None else listed(have)}",
            expected=f"as undisturbed: {listed(want)}",
            remedy=remedy,
            cause=error,
        )
