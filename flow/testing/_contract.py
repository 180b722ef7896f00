"""What is asked of a stage under test, and the error of a clause that does not hold."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ._attempt import Attempt
from ._trial import Trial, run_trial


@dataclass(frozen=True)
class Subject:
    """A stage under test and what is asked of it. ``check_stage`` explains the fields."""

    make: Callable[[], Any]
    name: str
    where: str
    outputs: Any
    per_input: tuple[int, int | None] | None
    idempotent: bool
    keep_order: bool
    raises: tuple[type[BaseException], ...]
    cancel_within_s: float
    reads: Any
    pools: Mapping[str, int]

    def trial(self, values: Sequence[Any], **settings: Any) -> Trial:
        """Send inputs through a new stage."""
        return run_trial(self.make, values, reads=self.reads, pools=self.pools, **settings)


class Broken(AssertionError):
    """A clause does not hold. There is a subclass for each clause, so that shrinking does not stray from one to another."""

    def __init__(self, clause: str, got: str, expected: str, remedy: str, values: Sequence[Any], cause: Any = None) -> None:
        super().__init__(clause)
        self.clause, self.got, self.expected, self.remedy, self.values = clause, got, expected, remedy, values
        self.__cause__ = cause


_KINDS: dict[str, type[Broken]] = {}


def broken(clause: str, values: Sequence[Any], *, got: str, expected: str, remedy: str, cause: Any = None) -> Broken:
    """Make the error of a clause."""
    kind = _KINDS.setdefault(clause, type(f"Broken {clause}", (Broken,), {}))
    return kind(clause, got, expected, remedy, values, cause)


def one(trial: Trial, attempt: Attempt) -> Sequence[Any]:
    """The inputs that it takes to see what this attempt shows: all, since others may have come before it."""
    return trial.before if attempt.index else [trial.before[0]]


def listed(values: Sequence[Any]) -> str:
    """Write values in one line."""
    return ", ".join(map(short, values)) or "nothing"


def told(error: BaseException | None) -> str:
    """Write an error in one line."""
    return "nothing" if error is None else f"{type(error).__name__}: {error}".splitlines()[0]


def short(value: Any) -> str:
    """Write a value in one line that is not too long."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:197]}..."
