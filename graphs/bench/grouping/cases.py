"""What is played, and what is stated to come of it. Values only; written down by hand, from what the policies promise.

Each case trains three steps of two groups of four. In the groups 1 and 4 the last member's tool does not answer. Where such a
group is dropped, its ticket opens another one in the same step; so six groups are trained in any case, and which ones tells
the policy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from flow import Drop, Retry, Shrink

STEPS, GROUPS, MEMBERS = 3, 2, 4
FAILING = (1, 4)
"""Births of the groups one of whose members fails."""
ALL = (0, 1, 2, 3, 4, 5)
"""Births that are trained where no group is dropped."""
OTHERS = (0, 2, 3, 5, 6, 7)
"""Births that are trained where the failing ones are dropped: 2 in place of 1, 5 in place of 4."""
WHOLE, SHRUNK = (4,) * 6, (4, 3, 4, 4, 3, 4)
"""Members that are trained, of each of these groups."""
TIMED_OUT, OVERDUE = "member failed: timed_out", "member failed: DeadlineExceeded"
ALWAYS = 1000
"""Attempts at a member that fail: more than any policy makes."""


@dataclass(frozen=True)
class Outcome:
    """What came of a run, or is stated to come.

    Attributes:
        trained: births of the groups that were trained; in order where nothing may lag.
        sizes: members of each that were trained.
        dropped: groups that were dropped, by reason.
        lost: members that were given up inside the barrier, by reason.
        failed: failed members that the trainer was told of.
        retried: members that were issued again.
        returned: tickets that came back from groups that were dropped.
        opened: groups that were opened.
        balanced: whether every task and every item is accounted for.
    """

    trained: tuple[int, ...] = ALL
    sizes: tuple[int, ...] = WHOLE
    dropped: dict[str, int] = field(default_factory=dict[str, int])
    lost: dict[str, int] = field(default_factory=dict[str, int])
    failed: int = 0
    retried: int = 0
    returned: int = 0
    opened: int = 6
    balanced: bool = True

    def __str__(self) -> str:
        groups = " ".join(f"{birth}:{size}" for birth, size in zip(self.trained, self.sizes, strict=False))
        return (
            f"trained {groups}; dropped {_counts(self.dropped)}; lost {_counts(self.lost)}; failed handed on {self.failed}; "
            f"retried {self.retried}; tickets back {self.returned}; opened {self.opened}; "
            f"{'balanced' if self.balanced else 'not balanced'}"
        )


@dataclass(frozen=True)
class Case:
    """One policy, and how often a member fails.

    Attributes:
        name: of the policy.
        missing: the policy.
        attempts: how many attempts at the member fail.
        stated: what must come of it.
        deadline: of the episode's step, or of the node's attempt.
    """

    name: str
    missing: Any
    attempts: int
    stated: Outcome
    deadline: Literal["step", "node"] = "step"


def _dropped(reason: str, lost: dict[str, int], retried: int = 0) -> Outcome:
    """Both failing groups are dropped, and their members that had succeeded are given up with them."""
    return Outcome(OTHERS, WHOLE, {reason: 2}, {**lost, "group dropped": 6}, retried=retried, returned=2, opened=8)


def _shrunk(retried: int = 0) -> Outcome:
    """Both go on with three members and the record of one that failed."""
    return Outcome(ALL, SHRUNK, {}, LOST, failed=2, retried=retried)


LOST = {"timed_out": 2}
CASES: tuple[Case, ...] = (
    Case("drop", "drop", ALWAYS, _dropped(TIMED_OUT, LOST)),
    Case("shrink, at least 0", Shrink(0), ALWAYS, _shrunk()),
    Case("shrink, at least 2", Shrink(2), ALWAYS, _shrunk()),
    Case("shrink, at least 3", Shrink(3), ALWAYS, _shrunk()),
    Case("shrink, at least 4", Shrink(4), ALWAYS, _dropped("too few members", LOST)),
    Case("retry once, then drop", Retry(1, then="drop"), 1, Outcome(retried=2)),
    Case("retry once, then drop", Retry(1, then="drop"), ALWAYS, _dropped(TIMED_OUT, LOST, retried=2)),
    Case("retry once, then shrink", Retry(1, then="shrink"), 1, Outcome(retried=2)),
    Case("retry once, then shrink", Retry(1, then="shrink"), ALWAYS, _shrunk(retried=2)),
    Case("retry twice, then drop", Retry(2, then="drop"), 2, Outcome(retried=4)),
    Case("drop", "drop", ALWAYS, _dropped(OVERDUE, {}), "node"),
    # An attempt that the node gives up leaves no episode: nothing of it is lost inside the barrier, or handed on.
    Case("retry once, then shrink", Retry(1, then="shrink"), ALWAYS, Outcome(ALL, SHRUNK, retried=2), "node"),
)
"""Every kind of policy, with members that fail as often as to try each of its ways."""
ON_ERROR = Drop()
"""What the node of the episodes makes of an attempt that runs into its own deadline: the barrier learns of it."""


@dataclass(frozen=True)
class LateOutcome:
    """What came of a run with a slow group, or is stated to come.

    Attributes:
        trains: whether the slow group is trained.
        dropped: groups that were dropped, by reason.
        returned: tickets that came back from them.
        opened: groups that were opened.
        balanced: whether every task and every item is accounted for.
    """

    trains: bool
    dropped: dict[str, int] = field(default_factory=dict[str, int])
    returned: int = 0
    opened: int = 6
    balanced: bool = True

    def __str__(self) -> str:
        return (
            f"group {SLOW} {'trained' if self.trains else 'not trained'}; dropped {_counts(self.dropped)}; tickets back "
            f"{self.returned}; opened {self.opened}; {'balanced' if self.balanced else 'not balanced'}"
        )


@dataclass(frozen=True)
class LateCase:
    """One way to treat groups that are slow, and would succeed. One version of lag is allowed.

    Attributes:
        late: ``wait`` or ``drop``.
        delay_s: seconds that a member of group 1 takes; ``None`` for as long as it is let.
        stated: what must come of it.
    """

    late: Literal["wait", "drop"]
    delay_s: float | None
    stated: LateOutcome


SLOW = 1
"""Birth of the slow group."""
MAX_LAG = 1
"""Versions that it may lag."""
LATE: tuple[LateCase, ...] = (
    LateCase("wait", 0.5, LateOutcome(True)),
    LateCase("drop", None, LateOutcome(False, {"stale": 1}, returned=1, opened=7)),
)


def _counts(dropped: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in sorted(dropped.items())) or "none"
