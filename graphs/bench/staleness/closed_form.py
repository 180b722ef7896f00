"""How old what is trained gets, by arithmetic: the mean lag of a pipeline whose rates are known. Pure.

Lag is counted in steps between the dispatch of a group, that is of its first member, and the step that trains it. Three things
bound it, and the least of them counts:

- The tickets. At most ``(depth + 1) * B`` groups are open, and ``B`` tickets come back each time that weights come into force.
  Where they are what a group waits for, groups ``(v + depth) * B`` and the ``B - 1`` behind it are dispatched under version v,
  and trained ``depth`` steps later. So the lag is the depth, whatever anything takes.
- The places. ``W`` members at once, of ``n`` to a group, that take ``E`` seconds each, begin a group every ``d = n*E/W``
  seconds. A group is ready ``R`` seconds after its dispatch, and if it is the last of its step, that is in force ``A + F + L``
  later: taken in, the step finished, the weights loaded. As long as the trainer keeps up, ``m - 1`` groups are dispatched
  meanwhile, with ``m = ceil((R + A + F + L) / d)``: Little's law. Group k is trained in step ``k // B`` and dispatched under
  version ``(k + 1 - m) // B``; the mean of their difference over ``B`` groups is ``(m - 1) / B``, exactly.
- The beginning. Nothing is older than version 0: in step s, from 0, no lag is above s.

A trainer that does not keep up, ``B*A + F > B*d``, has a queue that grows until the tickets are out: then the lag is the depth.
All of this holds where a load takes less than a step, and a dispatch no time. Longer loads skip versions.

The mean does not depend on the order in which groups are taken. A group that is overtaken is older, the one that overtakes it
younger by as much, and the sums of steps and of versions stay what they were. So heavy tails move the p99, and not the mean.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Rates:
    """How fast each part of a pipeline is.

    Attributes:
        places: members at once.
        group_size: members of a group.
        groups_per_step: of training.
        depth: steps of groups that may be open beside the one under way; ``max_lag``, unless ``Freshness.depth`` is given.
        member_s: mean seconds of a member.
        group_s: mean seconds from the dispatch of a group's first member until it is ready for the trainer; ``None`` for what
            it is where all members take the same: those of a member, and until its last one is dispatched.
        add_s: that the trainer takes over a group.
        finish_s: over the end of a step.
        load_s: until its weights are in force.
    """

    places: int
    group_size: int
    groups_per_step: int
    depth: int
    member_s: float
    group_s: float | None = None
    add_s: float = 0.0
    finish_s: float = 0.0
    load_s: float = 0.0

    @property
    def interval_s(self) -> float:
        """Seconds from one group to the next, where the places are what bounds them."""
        return self.group_size * self.member_s / self.places

    @property
    def ready_s(self) -> float:
        """``group_s``, or what it is where all members take the same."""
        if self.group_s is not None:
            return self.group_s
        return self.member_s + (self.group_size - 1) * self.member_s / self.places

    @property
    def trainer_s(self) -> float:
        """Seconds of the trainer for a step."""
        return self.groups_per_step * self.add_s + self.finish_s

    @property
    def trainer_bound(self) -> bool:
        """Whether a step of the trainer takes longer than its groups take to be made."""
        return self.trainer_s > self.groups_per_step * self.interval_s

    @property
    def mean_lag(self) -> float:
        """Mean lag in versions, once the pipeline is full."""
        if self.trainer_bound:
            return float(self.depth)
        until_in_force_s = self.ready_s + self.add_s + self.finish_s + self.load_s
        dispatched_meanwhile = math.ceil(until_in_force_s / self.interval_s) - 1
        return min(float(self.depth), dispatched_meanwhile / self.groups_per_step)


def mean_lag_by_step(rates: Rates, steps: int) -> Sequence[float]:
    """Mean lag of each step, the first ones included, in which nothing can be older than they are."""
    return [min(float(step), rates.mean_lag) for step in range(steps)]


def mean_lag_of_run(rates: Rates, steps: int) -> float:
    """Mean lag of a run of so many steps, at least 1, from its beginning."""
    return math.fsum(mean_lag_by_step(rates, steps)) / steps
