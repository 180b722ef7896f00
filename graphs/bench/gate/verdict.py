"""Whether a change that makes training faster may be kept: what its held-out score says. Pure."""

import math
from dataclasses import dataclass
from typing import Literal

from stages.scores import Score

Verdict = Literal["accepted", "refused", "undecided"]


@dataclass(frozen=True)
class Trial:
    """One training from the shared warm start.

    Attributes:
        name: of the change.
        score: on the held-out tasks, of the weights it ended with.
        steps: that it took.
        step_s: median seconds of a step.
        stopped: why a gate ended it; ``None`` where none did.
        evaluations: (version, success, low, high) of each evaluation during training, in order.
        best: version and success of the best of them; ``None`` without any.
        digests: of all bits of the parameters after each step.
        lag: largest number of versions between dispatch and training.
    """

    name: str
    score: Score
    steps: int
    step_s: float
    stopped: str | None
    evaluations: tuple[tuple[int, float, float, float], ...]
    best: tuple[int, float] | None
    digests: tuple[str, ...]
    lag: int


@dataclass(frozen=True)
class Judged:
    """What a change does.

    Attributes:
        verdict: ``refused`` where the gate stopped the run or the score is worse beyond chance; ``accepted`` where it is not
            worse by more than the tolerance, beyond chance; ``undecided`` where so many tasks cannot tell.
        why: a line.
        faster: steps of the changed training in the time of one of the other.
        change: of the held-out success.
        low: lower end of its interval.
        high: upper end.
    """

    verdict: Verdict
    why: str
    faster: float
    change: float
    low: float
    high: float


def judge(base: Trial, changed: Trial, tolerance: float) -> Judged:
    """Judge a change.

    Args:
        base: the training without it.
        changed: with it, from the same weights, scored on the same tasks.
        tolerance: most that the held-out success may fall.
    """
    low, high = difference_interval(changed.score, base.score)
    change, faster = changed.score.success - base.score.success, base.step_s / changed.step_s
    if changed.stopped is not None:
        verdict, why = "refused", f"its gate stopped it: {changed.stopped}"
    elif high < 0:
        verdict, why = "refused", f"held-out success falls by {-high:.3f} to {-low:.3f}"
    elif low >= -tolerance:
        verdict, why = (
            "accepted",
            f"held-out success changes by {low:+.3f} to {high:+.3f}, within the tolerance of {tolerance:g}",
        )
    else:
        verdict, why = "undecided", f"held-out success changes by {low:+.3f} to {high:+.3f}: take more held-out tasks"
    return Judged(verdict, why, faster, change, low, high)


def difference_interval(one: Score, other: Score) -> tuple[float, float]:
    """Interval of the difference of two success rates, at the level of their own.

    Source: Newcombe 1998, "Interval estimation for the difference between independent proportions", method 10, from Wilson's
    intervals. Both are over the same tasks here, which makes the true one narrower.
    """
    difference = one.success - other.success
    down = math.hypot(one.success - one.low, other.high - other.success)
    up = math.hypot(one.high - one.success, other.success - other.low)
    return difference - down, difference + up
