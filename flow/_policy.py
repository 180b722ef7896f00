"""What happens to an item that failed, and to a group that lost a member. Frozen values, declared on nodes."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from ._context import Context


@dataclass(frozen=True)
class Failure:
    """Why an item failed.

    Attributes:
        kind: name of the exception class, or the reason a stage gave.
        message: one line.
        error: the exception; ``None`` where a stage gave a reason itself.
    """

    kind: str
    message: str
    error: BaseException | None = None

    @property
    def trace(self) -> str:
        """The traceback as text, the last 20 frames; empty without an exception."""
        return "" if self.error is None else "".join(traceback.format_exception(self.error, limit=-20))


@dataclass(frozen=True)
class Fail:
    """The run ends with ``StageFailed``. The default."""


@dataclass(frozen=True)
class Drop:
    """The item is dropped and counted; a member's barrier learns of it, a group's ticket goes back.

    Attributes:
        most: the run ends with ``BudgetExceeded`` when more than this many of the last ``of`` items failed. Stands in for the
            ``budget`` of the node.
        of: length of that window in items.
    """

    most: int = 50
    of: int = 100


@dataclass(frozen=True)
class Emit:
    """A value made from the failure goes on in place of the result, marked as failed.

    Attributes:
        make: synchronous ``make(value, failure, context)``; must not raise.
        most: as for ``Drop``.
        of: as for ``Drop``.
    """

    make: Callable[[Any, Failure, Context], Any]
    most: int = 50
    of: int = 100


@dataclass(frozen=True)
class Retry:
    """The same input is tried again, with a higher retry number and so with other random keys.

    On a stage, ``then`` says what follows the last retry. On a barrier, ``then`` is ``"drop"`` (the group) or ``"shrink"``.

    Attributes:
        times: retries after the first failure.
        then: what follows when they are used up.
        backoff_s: seconds to wait before the first retry, doubled for each further one.
        on: exception classes worth a retry; others go straight to ``then``. Stages only.
    """

    times: int
    then: Fail | Drop | Emit | Literal["drop", "shrink"] = Fail()
    backoff_s: float = 0.0
    on: tuple[type[BaseException], ...] = (Exception,)


@dataclass(frozen=True)
class Shrink:
    """A barrier hands on the members that succeeded, if there are enough, else it drops the group.

    It keeps work that is done, and biases against what fails most, as long episodes do. Always counted.

    Attributes:
        min_members: fewest members worth handing on. 0 hands on every group, also one whose members all failed, as an
            evaluation wants whose denominator holds the failed ones too.
    """

    min_members: int = 2


Budget = tuple[int, int]
"""(most, of): the run ends when more than ``most`` of the last ``of`` outcomes failed."""
OnError = Fail | Drop | Emit | Retry
Missing = Literal["drop"] | Shrink | Retry
