"""Counts and times of one node. The ledger is these counts, added up and compared."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

State = Literal["input", "ticket", "pool", "work", "output"]
STATES: tuple[State, ...] = ("input", "ticket", "pool", "work", "output")


@dataclass(slots=True)
class Meter:
    """What happened at a node so far.

    Attributes:
        finished: inputs whose attempt was committed.
        steps: of a collecting sink, steps completed.
        dropped: inputs dropped, by reason.
        lost: values given up inside the node (a barrier's members), by reason.
        retried: failures followed by a retry; of a barrier, members that it had issued again.
        given_back: attempts given up by a cancel.
        recalled: attempts that what a journal knew of an earlier one stood in for.
        overdue: attempts that ran into their deadline.
        failures: by kind of error, the first traceback of each.
        seconds: worker seconds by state.
    """

    finished: int = 0
    steps: int = 0
    dropped: Counter[str] = field(default_factory=Counter[str])
    lost: Counter[str] = field(default_factory=Counter[str])
    retried: int = 0
    given_back: int = 0
    recalled: int = 0
    overdue: int = 0
    failures: dict[str, str] = field(default_factory=dict[str, str])
    seconds: dict[State, float] = field(default_factory=lambda: dict.fromkeys(STATES, 0.0))
