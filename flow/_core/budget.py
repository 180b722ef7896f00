"""Whether one node still gets anywhere: its last outcomes against what it may spend. Ends a run whose server is down.

Two limits. Of the last ``of`` outcomes at most ``most`` may have failed. And a node on a line with tickets may not give nothing
``of`` times in a row: each item it takes away is replaced, so commits go on, the stall watch is content, and no step fills.
"""

from collections import deque
from dataclasses import dataclass
from typing import Literal

from .._errors import BudgetExceeded
from .._policy import Drop, Emit, Retry
from .._spec import NodeSpec


@dataclass(frozen=True)
class Spent:
    """Moment of a budget.

    Attributes:
        failed: numbers of the outcomes that failed, as far back as the limit looks.
        count: outcomes so far.
        fruitless: items in a row that gave nothing.
        reason: of the last that did not go on.
    """

    failed: tuple[int, ...]
    count: int
    fruitless: int
    reason: str


Outcome = Literal["marked", "filtered", "failed"]
"""``marked`` goes on but stands for a failure; ``filtered`` is dropped on purpose, ``failed`` for an error."""


class Spending:
    """Outcomes of one node.

    Args:
        spec: the node, whose ``on_error`` or ``budget`` says how many may fail.

    Attributes:
        holds_tickets: whether an item that ends here is replaced by another.
    """

    __slots__ = ("_count", "_failed", "_fruitless", "_limit", "_policy", "_reason", "_spec", "holds_tickets")

    def __init__(self, spec: NodeSpec) -> None:
        policy = spec.on_error.then if isinstance(spec.on_error, Retry) else spec.on_error
        self._policy = policy if isinstance(policy, Drop | Emit) else None
        self._limit = spec.budget if self._policy is None else (self._policy.most, self._policy.of)
        self._spec = spec
        self._failed: deque[int] = deque()  # numbers of the outcomes that failed, as far back as the limit looks
        self._count = self._fruitless = 0
        self._reason = ""
        self.holds_tickets = False

    def kept(self, count: int = 1) -> None:
        """So many items or groups went on as they should."""
        self._count += count
        self._fruitless = 0

    def record(self, outcome: Outcome, reason: str = "") -> None:
        """An item or a group came to its end here otherwise; ``reason`` says why."""
        self._count += 1
        self._reason = reason or self._reason
        self._fruitless = 0 if outcome == "marked" else self._fruitless + 1
        if outcome != "filtered" and self._limit is not None:
            self._failed.append(self._count)

    def exceeded(self) -> BudgetExceeded | None:
        """The error that ends the run, where a limit is passed."""
        if self._limit is not None:
            most, of = self._limit
            while self._failed and self._failed[0] <= self._count - of:
                self._failed.popleft()
            if len(self._failed) > most:
                return self._too_many_failed(most, of)
        patience = self._spec.budget[1] if self._spec.budget is not None and self.holds_tickets else None
        if patience is not None and self._fruitless >= patience:
            got = f"handed on none of its last {self._fruitless} items"
            remedy = "Look at what it filters; where that is meant, budget=None in the graph sets no limit"
            return BudgetExceeded(self._spec.name, got, f"at least 1 of {patience}", self._reason, remedy)
        return None

    def moment(self) -> Spent:
        """What a snapshot needs."""
        return Spent(tuple(self._failed), self._count, self._fruitless, self._reason)

    def resume(self, moment: Spent) -> None:
        """Go on from a snapshot."""
        self._failed = deque(moment.failed)
        self._count, self._fruitless, self._reason = moment.count, moment.fruitless, moment.reason

    def _too_many_failed(self, most: int, of: int) -> BudgetExceeded:
        did, what = ("dropped", "groups") if self._spec.kind == "group" else ("failed", "items")
        got = f"{did} {len(self._failed)} of its last {min(self._count, of)} {what}"
        remedy = f"Repair what fails there, or raise budget=({most}, {of}); None for no limit"
        if self._policy is not None:
            remedy = f"Repair what it calls, or raise {type(self._policy).__name__}(most={most}, of={of})"
        return BudgetExceeded(self._spec.name, got, f"at most {most} of {of}", self._reason, remedy)
