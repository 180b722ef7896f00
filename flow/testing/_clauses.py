"""Clauses of a stage's contract that an undisturbed run shows. Each raises ``Broken`` where it does not hold."""

import inspect
from collections.abc import Sequence
from typing import Any, cast

from .._item import Failed, Filtered, Many
from .._types import assignable, type_name
from ._contract import Subject, broken, one, short, told
from ._same import same
from ._trial import Trial


def returns(trial: Trial) -> None:
    """The run comes to its end."""
    if trial.error is not None:
        raise broken(
            "returns",
            trial.before,
            got=told(trial.error),
            expected="an end of the run, without an error",
            remedy="end every wait: with a time limit, or by whoever is waited for; a thread or a socket needs a fake here",
            cause=trial.error,
        )


def raises(subject: Subject, trial: Trial) -> None:
    """Nothing but what is declared."""
    for attempt in trial.attempts:
        if attempt.error is not None and not isinstance(attempt.error, subject.raises):
            raise broken(
                "raises",
                one(trial, attempt),
                got=told(attempt.error),
                expected=" or ".join(["an output", *(kind.__name__ for kind in subject.raises)]),
                remedy="handle this input, or name the error in raises=(...) where it is meant",
                cause=attempt.error,
            )


def outputs(subject: Subject, trial: Trial) -> None:
    """As many as there should be, of the type there should be."""
    for attempt in trial.attempts:
        if attempt.ended != "result":
            continue
        if inspect.isgenerator(attempt.result) or inspect.isasyncgen(attempt.result):
            raise broken(
                "types",
                one(trial, attempt),
                got="a generator" if inspect.isgenerator(attempt.result) else "an async generator",
                expected="a value: a stage returns, it does not yield",
                remedy="give what it yields as one result: return Many([...])",
            )
        values = _values(attempt.result)
        for value in values:
            if not assignable(type(value), subject.outputs):
                raise broken(
                    "types",
                    one(trial, attempt),
                    got=f"{short(value)}, a {type(value).__name__}",
                    expected=type_name(subject.outputs),
                    remedy="give what the hint promises, or change the hint, or outputs=...",
                )
        if subject.per_input is not None:
            least, most = subject.per_input
            if len(values) < least or (most is not None and len(values) > most):
                raise broken(
                    "outputs per input",
                    one(trial, attempt),
                    got=f"{len(values)}: {short(attempt.result)}",
                    expected=f"from {least} to {most}" if most != least else f"{least}",
                    remedy="name Filtered or Many in the stage's return hint, or say per_input=(least, most)",
                )


def untouched(trial: Trial, when: str) -> None:
    """The inputs are as they were."""
    for before, after in zip(trial.before, trial.after, strict=True):
        if not same(before, after):
            raise broken(
                "input untouched",
                [before],
                got=f"after {when} the input was {short(after)}",
                expected=f"still {short(before)}",
                remedy="work on a copy: the engine gives the same object to the next attempt, and to whoever else holds it",
            )


def no_task_left(trial: Trial) -> None:
    """No task outlives an attempt."""
    for attempt in trial.attempts:
        if attempt.left:
            how = "was cancelled" if attempt.ended == "cancel" else "had ended"
            raise broken(
                "no task left",
                one(trial, attempt),
                got=f"when the attempt {how}, these went on: {', '.join(attempt.left)}",
                expected="no task that outlives the attempt",
                remedy="start tasks in an asyncio.TaskGroup or anyio task group, which waits for them",
            )


def closed(subject: Subject, calm: Trial) -> None:
    """Opened and closed once, with nothing left open, also where the run ends with an error."""
    if not calm.entered:
        return
    for fails, when in ((False, "a run that completed"), (True, "a run that ended with an error")):
        # Twice, since what else goes on in this process may open files too.
        trial, again = (subject.trial(calm.before, fails=fails) for _ in range(2))
        faults = [fault for fault in trial.closing if fault in again.closing]
        if (trial.entered, trial.exited) != (1, 1):
            faults.append(f"opened {trial.entered} times, closed {trial.exited} times")
        if faults:
            raise broken(
                "closed once",
                calm.before,
                got=f"after {when}, {'; '.join(faults)}",
                expected="everything it opened closed, once, whatever the run came to",
                remedy="close it in __aexit__, in a finally, also where __aexit__ is given an error, and return None",
                cause=trial.error if not fails else None,
            )


def _values(result: Any) -> Sequence[Any]:
    if isinstance(result, Filtered):
        return []
    if isinstance(result, Many):
        return cast("Many[Any]", result).values
    return [cast("Failed[Any]", result).value if isinstance(result, Failed) else result]
