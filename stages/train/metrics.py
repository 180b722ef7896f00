"""The row of metrics of one training step: what is counted while batches arrive, and how it is summed up. No JAX, no clock.

A value that was not measured is ``None``: the mean reward of a step without a scored episode is not 0.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from stages.records import Batch, EpisodeRow, Status

Row = dict[str, int | float | str | None]


class StepMeter:
    """What arrived since the last update. One for each step; its size is bounded by the step's groups."""

    def __init__(self) -> None:
        self.episodes: list[EpisodeRow] = []
        self.lags: list[int] = []
        self.num_groups = 0
        self.num_silent = 0
        self.num_targets = 0
        self.num_tokens = 0
        self.divisor = 0.0
        self.num_microbatches = 0
        self.gradient_s = 0.0

    def add(self, batch: Batch, lag: int | None) -> None:
        """Count a batch, trained at a lag in versions (``None``: it carries no version)."""
        self.episodes.extend(batch.episodes)
        if lag is not None:
            self.lags.append(lag)
        self.num_groups += 1
        self.num_silent += not any(np.any(segment.advantages) for segment in batch.segments if segment.advantages is not None)
        self.num_targets += batch.num_targets
        self.num_tokens += sum(len(segment.ids) for segment in batch.segments)
        self.divisor += batch.divisor


def episode_metrics(episodes: Sequence[EpisodeRow]) -> Row:
    """Counts by status, and means over scored episodes.

    ``success`` is the share of *all* episodes with a reward of at least 1: one that failed is no success, and leaving it out
    would overstate the policy. ``reward_mean`` is over scored ones only: a failure is no zero.
    """
    rewards = [row.reward for row in episodes if row.reward is not None]
    return {
        "num_episodes": len(episodes),
        **{f"episodes_{status}": sum(row.status is status for row in episodes) for status in Status},
        "reward_mean": mean(rewards),
        "success": sum(reward >= 1.0 for reward in rewards) / len(episodes) if rewards else None,
        "forks": sum(row.num_forks for row in episodes),
        "turns_mean": mean(row.num_turns for row in episodes),
        "episode_s_mean": mean(row.seconds for row in episodes),
        "sampled_tokens": sum(row.num_sampled for row in episodes) if episodes else None,
    }


def flow_metrics(meter: StepMeter, applied: bool) -> Row:
    """Tokens, lag and signal of a step.

    ``trained_tokens`` had a gradient in an update that was applied; ``goodput`` is their share of the sampled ones, so tokens
    of failed, silent and stale members lower it. ``no_signal_groups`` is the share of groups without any advantage.
    """
    sampled = sum(row.num_sampled for row in meter.episodes)
    trained = meter.num_targets if applied else 0
    scored = any(row.reward is not None for row in meter.episodes)
    return {
        "num_groups": meter.num_groups,
        "no_signal_groups": meter.num_silent / meter.num_groups if scored else None,
        "trained_tokens": trained,
        "goodput": trained / sampled if sampled else None,
        "lag_mean": mean(meter.lags),
        "lag_max": max(meter.lags, default=None),
        "microbatches": meter.num_microbatches,
    }


def loss_metrics(sums: Mapping[str, Any], num_targets: int) -> Row:
    """Means over the targets of what the loss summed; ``None`` for what this loss does not measure."""
    names = {"clip_fraction", "kl", "logprob_gap", "ratio", "entropy", *sums}
    measured = {name: float(sums[name]) / num_targets for name in sums} if num_targets else {}
    return {name: measured.get(name) for name in sorted(names)}


def gap_metrics(gap: Any) -> Row:
    """How far the engine is from the trainer, over targets that the version being trained sampled; ``None`` without any.

    Both score the same tokens with the same weights, so what is left is arithmetic: the order of sums, and the types.

    Args:
        gap: ``stages.train.step.Gap``, on the host.
    """
    if not gap.num:
        return {"engine_gap": None, "engine_gap_max": None}
    return {"engine_gap": float(gap.sum) / float(gap.num), "engine_gap_max": float(gap.max)}


def skip_reason(num_targets: int, applied: bool) -> str | None:
    """Why the update was skipped, ``None`` where it was not."""
    if applied:
        return None
    return "no_targets" if num_targets == 0 else "not_finite"


def warning(row: Row, no_signal_above: float) -> str | None:
    """One line about a step that trains less than it seems to, ``None`` for a sound one."""
    if row["skipped"] is not None:
        return f"update skipped: {row['skipped']}"
    share = row["no_signal_groups"]
    if isinstance(share, float) and share > no_signal_above:
        return f"{share:.0%} of the groups carry no signal: all their members have one reward"
    return None


def mean(values: Iterable[float]) -> float | None:
    """Arithmetic mean, ``None`` of nothing."""
    values = list(values)
    return sum(values) / len(values) if values else None
