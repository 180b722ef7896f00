"""The row of metrics of one training step: what is counted while batches arrive, and how it is summed up. No JAX, no clock.

A value that was not measured is ``None``: the mean reward of a step without a scored episode is not 0.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from stages.records import Batch, EpisodeRow, Status

StepRow = dict[str, int | float | str | None]
"""What a step tells, by name: a row of ``metrics.jsonl``."""
Reason = Literal["no_targets", "not_finite", "exploding"]
"""Why an update was left out: nothing to train, a number that is not finite, or a gradient norm above its bound."""
REASONS: tuple[Reason, ...] = ("no_targets", "not_finite", "exploding")


@dataclass(frozen=True)
class Updated:
    """What came of one update, on the host.

    Attributes:
        minibatch: its number in the step, by birth; each pass has it once.
        num_targets: tokens with a loss.
        divisor: of the summed loss.
        loss: summed, over the divisor.
        grad_norm: global norm of the gradient, before it is scaled down.
        sums: what the loss summed, by name.
        gap: ``stages.train.step.Gap``.
        reason: why it was left out; ``None`` where it was applied.
    """

    minibatch: int
    num_targets: int
    divisor: float
    loss: float
    grad_norm: float
    sums: Mapping[str, float]
    gap: Any
    reason: Reason | None


def of_the_machine(name: str) -> bool:
    """Whether a figure of a row is one of the clock or of the machine, which no two runs share, and not of what was trained."""
    return name.endswith(("_s", "_s_mean", "_per_second", "_bytes")) or name in ("time", "compilations")


class StepMeter:
    """What arrived since the last step, and what came of it. Its size is bounded by the step's groups and updates."""

    def __init__(self) -> None:
        self.episodes: list[EpisodeRow] = []
        self.lags: list[int] = []
        self.num_groups = 0
        self.num_silent = 0
        self.num_tokens = 0
        self.num_microbatches = 0
        self.num_places = 0
        self.num_filled = 0
        self.gradient_s = 0.0
        self.proximal_s = 0.0
        self.update_s = 0.0
        self.proximal_gap: float | None = None
        self.updates: list[Updated] = []
        self.kept: list[str] = []

    def add(self, batch: Batch, lag: int | None) -> None:
        """Count a batch, trained at a lag in versions (``None``: it carries no version)."""
        self.episodes.extend(batch.episodes)
        if lag is not None:
            self.lags.append(lag)
        self.num_groups += 1

    def trains(self, batches: Sequence[Batch]) -> None:
        """Count what the step trains on: the batches that were added, with the advantages that the loss reads."""
        for batch in batches:
            segments = batch.segments
            self.num_silent += not any(np.any(segment.advantages) for segment in segments if segment.advantages is not None)
            self.num_tokens += sum(len(segment.ids) for segment in segments)

    @property
    def num_trained(self) -> int:
        """Tokens that had a gradient in an update that was applied; those of several passes count once."""
        return sum({update.minibatch: update.num_targets for update in self.updates if update.reason is None}.values())


def step_metrics(meter: StepMeter, *, step_s: float) -> StepRow:
    """All that a step tells of what arrived and what came of it.

    Args:
        meter: of the step.
        step_s: seconds since the step before. What is not gradient, pass of an old policy or update is ``wait_s``.
    """
    busy_s = meter.gradient_s + meter.proximal_s + meter.update_s
    return {
        **update_metrics(meter.updates),
        "bad_steps": ", ".join(meter.kept) or None,
        **episode_metrics(meter.episodes),
        **flow_metrics(meter),
        **loss_metrics(meter.updates),
        **gap_metrics(meter.updates),
        "proximal_gap": meter.proximal_gap,
        "step_s": step_s,
        "gradient_s": meter.gradient_s,
        "proximal_s": meter.proximal_s,
        "update_s": meter.update_s,
        "wait_s": step_s - busy_s,
        "tokens_per_second": meter.num_tokens / step_s,
        "gradient_tokens_per_second": meter.num_filled / meter.gradient_s if meter.gradient_s else None,
    }


def episode_metrics(episodes: Sequence[EpisodeRow]) -> StepRow:
    """Counts by status, and means over scored episodes.

    ``success`` is the share of *all* episodes with a reward of at least 1: one that failed is no success, and leaving it out
    would overstate the policy. ``reward_mean`` is over scored ones only: a failure is no zero.
    """
    rewards = [row.reward for row in episodes if row.reward is not None]
    return {
        "num_episodes": len(episodes),
        **{f"episodes_{status}": sum(row.status is status for row in episodes) for status in Status},
        "reward_mean": mean(rewards),
        "reward_std": statistics.pstdev(rewards) if rewards else None,
        "success": sum(reward >= 1.0 for reward in rewards) / len(episodes) if rewards else None,
        "forks": sum(row.num_forks for row in episodes),
        "turns_mean": mean(row.num_turns for row in episodes),
        "episode_s_mean": mean(row.seconds for row in episodes),
        "sampled_tokens": sum(row.num_sampled for row in episodes) if episodes else None,
    }


def flow_metrics(meter: StepMeter) -> StepRow:
    """Tokens, lag and signal of a step.

    ``trained_tokens`` had a gradient in an update that was applied; ``goodput`` is their share of the sampled ones, so tokens
    of failed, silent and stale members lower it. ``no_signal_groups`` is the share of groups without any advantage. Both are of
    what reached the trainer: a group that was filtered before is in neither (``stages.outcomes`` counts it).
    """
    sampled = sum(row.num_sampled for row in meter.episodes)
    trained = meter.num_trained
    scored = any(row.reward is not None for row in meter.episodes)
    return {
        "num_groups": meter.num_groups,
        "no_signal_groups": meter.num_silent / meter.num_groups if scored else None,
        "trained_tokens": trained,
        "goodput": trained / sampled if sampled else None,
        "lag_mean": mean(meter.lags),
        "lag_max": max(meter.lags, default=None),
        "microbatches": meter.num_microbatches,
        "fill": meter.num_filled / meter.num_places if meter.num_places else None,
    }


def update_metrics(updates: Sequence[Updated]) -> StepRow:
    """How the updates of a step went.

    ``loss`` is summed over the applied ones and divided by their divisors; over all that had a target where none was applied,
    so that a loss that is not finite is seen. ``grad_norm`` is the largest of all, those left out included. ``skipped`` names
    the reasons.
    """
    tried = [update for update in updates if update.num_targets]
    norms = [update.grad_norm for update in tried]
    reasons = [update.reason for update in updates]
    return {
        "loss": _over([update.loss * update.divisor for update in counted(updates)], [u.divisor for u in counted(updates)]),
        "grad_norm": next((norm for norm in norms if math.isnan(norm)), max(norms, default=None)),
        "updates": sum(reason is None for reason in reasons),
        "skipped": ", ".join(reason for reason in REASONS if reason in reasons) or None,
        **{f"skipped_{reason}": reasons.count(reason) for reason in REASONS},
    }


def counted(updates: Sequence[Updated]) -> Sequence[Updated]:
    """Updates whose figures are told: those applied, or all that had a target where none was."""
    tried = [update for update in updates if update.num_targets]
    return [update for update in tried if update.reason is None] or tried


def loss_metrics(updates: Sequence[Updated]) -> StepRow:
    """Means over the targets of what the loss summed; ``None`` for what this loss does not measure."""
    names = {"clip_fraction", "kl", "logprob_gap", "ratio", "entropy", *(name for update in updates for name in update.sums)}
    chosen = counted(updates)
    targets = [update.num_targets for update in chosen]
    every = [update.sums for update in chosen]
    measured = {name: [sums[name] for sums in every] for name in sorted(names) if all(name in sums for sums in every)}
    row: StepRow = {name: _over(measured.get(name, ()), targets) for name in sorted(names)}
    return row if "value_error" not in row else row | {"explained_variance": _explained(row)}


def gap_metrics(updates: Sequence[Updated]) -> StepRow:
    """How far the engine is from the trainer, over targets that the version being trained sampled; ``None`` without any.

    Both score the same tokens with the same weights, so what is left is arithmetic: the order of sums, and the types.
    """
    gaps = [update.gap for update in updates if update.gap.num]
    if not gaps:
        return {"engine_gap": None, "engine_gap_max": None}
    mean_gap = _over([float(gap.sum) for gap in gaps], [float(gap.num) for gap in gaps])
    return {"engine_gap": mean_gap, "engine_gap_max": max(float(gap.max) for gap in gaps)}


def skip_reason(num_targets: int, applied: bool, norm: float, loss: float) -> Reason | None:
    """Why an update was left out, ``None`` where it was not."""
    if applied:
        return None
    if num_targets == 0:
        return "no_targets"
    return "exploding" if math.isfinite(norm) and math.isfinite(loss) else "not_finite"


def warning(row: StepRow, no_signal_above: float) -> str | None:
    """One line about a step that trains less than it seems to, ``None`` for a sound one."""
    if row["skipped"] is not None:
        done, left_out = row["updates"], sum(int(row[f"skipped_{reason}"] or 0) for reason in REASONS)
        share = f"{left_out} of {left_out + int(done)} updates" if done else "update"
        kept = f"; headrace replay-batch repeats {row['bad_steps']}" if row["bad_steps"] else ""
        return f"{share} skipped: {row['skipped']}{kept}"
    share = row["no_signal_groups"]
    if isinstance(share, float) and share > no_signal_above:
        return f"{share:.0%} of the groups carry no signal: no token of them has an advantage"
    return None


def mean(values: Iterable[float]) -> float | None:
    """Arithmetic mean, ``None`` of nothing."""
    values = list(values)
    return sum(values) / len(values) if values else None


def _explained(means: StepRow) -> float | None:
    """Share of the variance of returns that the critic knows; see ``stages.losses.value.value_sums``."""
    moments = [means[name] for name in ("returns", "returns_squared", "value_error", "value_error_squared")]
    first, second, error, squared = (float(value or 0.0) for value in moments)
    variance = second - first**2
    return 1.0 - (squared - error**2) / variance if variance > 0 else None


def _over(values: Sequence[float], parts: Sequence[float]) -> float | None:
    """A sum over another; ``None`` of nothing."""
    return sum(values) / sum(parts) if parts and values else None
