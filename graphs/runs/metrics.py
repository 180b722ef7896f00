"""Every metric that a run tells: name, unit, meaning, and the row it is in. The one list; docs/metrics.md is written from it.

Not where any of it is measured, and not what is done with it. A part of a name in braces stands for what differs between runs,
such as a source of tasks. Longer than other files since it is a list, which is read by its headings.

``python -m graphs.runs.metrics docs/metrics.md`` writes the tables of that page anew.
"""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

Row = Literal["every", "step", "evaluation", "progress", "health", "alert", "warning", "episode", "summary"]


@dataclass(frozen=True)
class Metric:
    """One metric.

    Attributes:
        name: its key in the row; in ``summary`` the keys above it too, with dots between.
        unit: what it is counted in; ``text`` for what is no number.
        meaning: one sentence.
        row: which row it is in.
    """

    name: str
    unit: str
    meaning: str
    row: Row

    def matches(self, name: str) -> bool:
        """Whether it is the metric of this name."""
        return self._pattern.fullmatch(name) is not None

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(re.sub(r"\\{[a-z_]+\\}", ".+", re.escape(self.name)))


_TABLES: Mapping[Row, Sequence[tuple[str, str, str]]] = {
    "every": (
        ("time", "text", "when the row was written, UTC"),
        ("attempt", "starts", "which start of the run wrote it, from 0"),
        ("phase", "text", "phase of the program"),
        ("stage", "text", "who says so: a node of the graph, or `health`, `alerts`, `commits`, `loggers`"),
    ),
    "step": (
        ("step", "steps", "steps finished, this one included; the version of the weights it made"),
        ("loss", "loss", "loss over the divisors of the updates that were applied"),
        ("grad_norm", "norm", "largest global norm of a gradient, before it is scaled down"),
        ("learning_rate", "rate", "of the last update that was applied"),
        ("updates", "updates", "updates that were applied"),
        ("epochs", "passes", "passes over the step"),
        ("microbatches", "micro-batches", "gradients taken"),
        ("skipped", "text", "why updates were left out"),
        ("skipped_no_targets", "updates", "left out since nothing was to be trained"),
        ("skipped_not_finite", "updates", "left out since a number was not finite"),
        ("skipped_exploding", "updates", "left out since the gradient was above its bound"),
        ("skipped_total", "updates", "left out since the run began"),
        ("bad_steps", "text", "folders that keep the updates which were left out"),
        ("warning", "text", "what is wrong with the step"),
        ("num_groups", "groups", "groups of the step"),
        ("num_episodes", "episodes", "episodes of its groups"),
        ("episodes_{status}", "episodes", "of these, those that ended so"),
        ("reward_mean", "reward", "mean of the episodes that have a reward"),
        ("reward_std", "reward", "deviation of these rewards"),
        ("success", "share", "episodes with a reward of at least 1, of all, failed ones included"),
        ("forks", "rows", "training rows more than episodes, since a template rewrote history"),
        ("turns_mean", "turns", "turns of an episode"),
        ("episode_s_mean", "s", "time of an episode"),
        ("sampled_tokens", "tokens", "sampled in the episodes of the step"),
        ("trained_tokens", "tokens", "of these, those with a gradient in an update that was applied"),
        ("goodput", "share", "trained over sampled tokens of the step"),
        ("no_signal_groups", "share", "groups of the step without any advantage"),
        ("no_signal_filtered", "groups", "given up for that before any step, since the row before"),
        ("lag_mean", "versions", "mean age of a group when it was trained"),
        ("lag_max", "versions", "age of the oldest one"),
        ("fill", "share", "tokens over the places of all rows"),
        ("engine_gap", "nats", "mean difference of log-probabilities, engine against trainer, with the same weights"),
        ("engine_gap_max", "nats", "the largest one"),
        ("proximal_gap", "nats", "mean difference of the weights at the beginning of the step from what was recorded"),
        ("clip_fraction", "share", "targets whose ratio was clipped"),
        ("clip_fraction_low", "share", "clipped from below"),
        ("clip_fraction_high", "share", "clipped from above"),
        ("clip_fraction_dual", "share", "clipped a second time, with a negative advantage"),
        ("correction_fraction", "share", "targets whose correction weight was truncated or masked"),
        ("importance_weight", "ratio", "mean correction weight"),
        ("ratio", "ratio", "mean ratio of new to old probability"),
        ("kl", "nats", "estimated divergence from the policy that sampled"),
        ("kl_reference", "nats", "estimated divergence from the reference model"),
        ("logprob_gap", "nats", "mean absolute difference of log-probabilities from those recorded"),
        ("entropy", "nats", "mean entropy of the policy"),
        ("value_loss", "loss", "of the critic"),
        ("value_clip_fraction", "share", "targets whose value was clipped"),
        ("value_error", "reward", "mean error of the critic"),
        ("value_error_squared", "reward^2", "its mean square"),
        ("returns", "reward", "mean return"),
        ("returns_squared", "reward^2", "its mean square"),
        ("explained_variance", "share", "variance of returns that the critic knows"),
        ("reward_chosen", "nats", "implicit reward of what was preferred"),
        ("reward_rejected", "nats", "implicit reward of what was not"),
        ("margin", "nats", "difference of the two"),
        ("accuracy", "share", "pairs whose preferred answer has the larger implicit reward"),
        ("step_s", "s", "time since the step before"),
        ("gradient_s", "s", "of that, taking gradients"),
        ("proximal_s", "s", "of that, asking the old policy"),
        ("update_s", "s", "of that, updating"),
        ("wait_s", "s", "of that, waiting for batches"),
        ("tokens_per_second", "tokens/s", "tokens of the step over its time"),
        ("gradient_tokens_per_second", "tokens/s", "tokens over the time that gradients took"),
        ("compilations", "programs", "compiled when the trainer opened; it does not grow"),
        ("temporary_bytes", "bytes", "most that a program of the step works in"),
        ("device_bytes", "bytes", "in use at the end of the step on the fullest of the trainer's devices, where it tells"),
        ("device_peak_bytes", "bytes", "most that was ever in use on one of them, the same"),
        ("drawn/{source}", "tasks", "drawn of a source since the row before"),
        ("trained/{source}", "tasks", "trained, the same"),
        ("silent/{source}", "tasks", "in a step and nothing of them to train, the same"),
        ("lost/{source}", "tasks", "given up for whatever reason, the same"),
    ),
    "evaluation": (
        ("version", "versions", "weights that were evaluated"),
        ("heldout", "share", "held-out success; failed episodes count as not"),
        ("heldout_low", "share", "lower end of its 95 % interval"),
        ("heldout_high", "share", "upper end"),
        ("heldout_pass@{k}", "share", "chance that one of k attempts is right"),
        ("heldout_reward_mean", "reward", "mean of the episodes that have a reward"),
        ("heldout_episodes", "episodes", "wanted"),
        ("heldout_failed", "episodes", "that say nothing about the policy"),
        ("heldout_given_up", "evaluations", "given up so far since they took too long"),
        ("heldout_tokens", "tokens", "sampled"),
        ("heldout_s", "s", "time it took"),
        ("sync_wait_s", "s", "of that, time for which new weights were held back"),
        ("warning", "text", "what is wrong with it"),
    ),
    "progress": (
        ("evaluated", "episodes", "of an evaluation under way that have ended"),
        ("of", "episodes", "wanted"),
        ("success_so_far", "share", "of those that have ended"),
    ),
    "health": (
        ("seconds", "s", "since the program began, over all its starts"),
        ("trajectories_per_minute", "episodes/min", "episodes that ended, failed ones included, since the row before"),
        ("groups_per_minute", "groups/min", "complete groups, the same"),
        ("examples_per_minute", "rows/min", "training rows that were cut, the same"),
        ("timed_out_share", "share", "of the last 256 episodes, those that ran out of time"),
        ("truncated_share", "share", "of the same, those cut by a budget of tokens or turns"),
        ("failed_share", "share", "of the same, those that say nothing about the policy"),
        ("open_groups", "groups", "opened and not closed"),
        ("half_filled_groups", "groups", "of these, those of which a member is there and another is not"),
        ("oldest_group_s", "s", "age of the oldest of these, to a second or so"),
        ("ready_groups", "groups", "complete, and not in a step yet"),
        ("goodput", "share", "trained over sampled tokens of the phase so far"),
        ("sampled_tokens_per_second", "tokens/s", "that the engine sampled since the row before"),
        ("engine_utilisation", "share", "slots that took part in a decode step, the same"),
        ("engine_waiting", "requests", "without a slot, now"),
        ("trainer_work_share", "share", "time of the sink at the end of the line that is work, since the row before"),
        ("host_memory_mb", "MB", "memory of the process now"),
        ("host_memory_share", "share", "of what the machine, or its control group, has"),
        ("loop_lag_ms", "ms", "longest that the event loop was held up since the row before"),
        ("loggers_dropped", "rows", "that loggers did not take in time, so far"),
    ),
    "alert": (
        ("alert", "text", "the rule"),
        ("state", "text", "`raised` or `cleared`"),
        ("metric", "text", "what it looks at"),
        ("value", "as the metric", "what it was then"),
        ("of_stage", "text", "whose row it was"),
    ),
    "warning": (("warning", "text", "what went wrong beside the work, and the run went on"),),
    "episode": (
        ("birth", "groups", "birth number of its group"),
        ("member", "members", "index in the group"),
        ("retry", "retries", "recorded failures before"),
        ("reward", "reward", "sum that training uses"),
        ("parts.{reward}", "reward", "one reward, without its weight"),
        ("version", "versions", "newest weights that sampled a token of it"),
        ("num_sampled", "tokens", "sampled"),
        ("seconds", "s", "time it took"),
        ("timings.{part}_s", "s", "of that: `setup`, `reset`, `score` and `close` of its environment"),
    ),
    "summary": (
        ("attempts", "starts", "of the run"),
        ("wall_s", "s", "of all starts"),
        ("setup_s", "s", "of that, while no graph ran"),
        ("peak_rss_mb", "MB", "most memory of the process, of the last start"),
        ("seed", "seed", "of the run"),
        ("phases.{phase}.seconds", "s", "time of a phase at work"),
        ("steps", "steps", "of the main phase, as what follows"),
        ("train_s", "s", "its time at work"),
        ("episodes.{status}", "episodes", "that ended so, retries included"),
        ("sampled_tokens", "tokens", "of these"),
        ("trained_tokens", "tokens", "with a gradient in an update that was applied"),
        ("goodput", "share", "trained over sampled tokens"),
        ("lag_mean", "versions", "mean of the steps' means"),
        ("lag_max", "versions", "of all groups"),
        ("max_lag", "versions", "what it was bounded by"),
        ("ledger_balanced", "yes or no", "whether every item is accounted for"),
        ("leftovers.{place}", "items", "not at their end when it ended, by where they are"),
        ("loop_lag_max_ms", "ms", "longest that the event loop was held up"),
        ("loop_lag_p99_ms", "ms", "99 % of its timers were no later, of the last start"),
        ("sources.{source}.drawn", "tasks", "drawn of a source"),
        ("sources.{source}.drawn_share", "share", "of all that were drawn to be trained"),
        ("sources.{source}.trained", "tasks", "trained"),
        ("sources.{source}.trained_share", "share", "of all that were trained"),
        ("sources.{source}.ends.{end}", "tasks", "that ended so"),
        ("sources.{source}.unfinished", "tasks", "on their way at the end"),
        ("sources.{source}.episodes.{status}", "episodes", "that ended so"),
        ("sources.{source}.difficulties.{difficulty}.{count}", "tasks", "the same of those of one difficulty"),
        ("stages.{stage}.taken", "items", "taken by a node"),
        ("stages.{stage}.emitted", "items", "handed on, or steps of a sink"),
        ("stages.{stage}.dropped.{reason}", "items", "given up, by reason"),
        ("stages.{stage}.lost.{reason}", "members", "given up inside a barrier, by reason"),
        ("stages.{stage}.retried", "attempts", "made again after a failure"),
        ("stages.{stage}.high_water", "items", "most that ever waited before it"),
        ("stages.{stage}.{state}_share", "share", "time of its workers in a state; all states add up to 1"),
        ("gate.best.version", "versions", "the best evaluation"),
        ("gate.best.heldout", "share", "its success"),
        ("gate.best.heldout_low", "share", "lower end of its interval"),
        ("heldout_before", "share", "held-out success before the training"),
        ("heldout_after", "share", "and behind it"),
        ("heldout", "share", "of a program that only evaluates"),
        ("{evaluation}_detail.success", "share", "the same number"),
        ("{evaluation}_detail.low", "share", "lower end of its 95 % interval"),
        ("{evaluation}_detail.high", "share", "upper end"),
        ("{evaluation}_detail.pass_at.{k}", "share", "chance that one of k attempts is right"),
        ("{evaluation}_detail.reward_mean", "reward", "mean of the episodes that have a reward"),
        ("{evaluation}_detail.episodes", "episodes", "wanted"),
        ("{evaluation}_detail.statuses.{status}", "episodes", "that ended so"),
        ("{evaluation}_detail.num_sampled", "tokens", "sampled"),
        ("{evaluation}_detail.tokens_per_episode", "tokens", "mean of the episodes that came"),
        ("{evaluation}_detail.missing", "episodes", "that never came"),
    ),
}  # fmt: skip
METRICS: tuple[Metric, ...] = tuple(
    Metric(name, unit, meaning, row) for row, table in _TABLES.items() for name, unit, meaning in table
)
HEADINGS: Mapping[Row, str] = {
    "every": "Every row",
    "step": "A step",
    "evaluation": "A held-out evaluation during training",
    "progress": "An evaluation under way",
    "health": "Health",
    "alert": "An alert",
    "warning": "A warning",
    "episode": "An episode (`episodes.jsonl`)",
    "summary": "The summary (`summary.json`)",
}
JUDGED: tuple[Row, ...] = ("step", "evaluation", "progress", "health")
"""Rows whose numbers an alert may look at."""


HEALTH, ALERTS = "health", "alerts"
"""What rows of health and of alerts say in place of a stage."""


def kind_of(row: Mapping[str, Any]) -> Row | None:
    """Which kind of row of ``metrics.jsonl`` it is; ``None`` for one that a stage of the user's own reported."""
    if row.get("stage") in (HEALTH, ALERTS):
        return "health" if "seconds" in row else "alert" if "alert" in row else "warning"
    marks: tuple[tuple[str, Row], ...] = (
        ("skipped_total", "step"), ("heldout_episodes", "evaluation"), ("success_so_far", "progress"), ("warning", "warning"),
    )  # fmt: skip
    return next((kind for mark, kind in marks if mark in row), None)


def numbers(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """What a row measured, without its place and its text. What is not finite is among it."""
    for name, value in row.items():
        if isinstance(value, int | float | np.number) and not isinstance(value, bool) and name not in _PLACE:
            yield name, float(value)


def find(name: str, rows: Sequence[Row] = tuple(_TABLES)) -> Metric | None:
    """The metric of a name, in any of these rows; ``None`` where there is none."""
    return next((metric for metric in METRICS if metric.row in rows and metric.matches(name)), None)


def tables() -> str:
    """All metrics as they stand in docs/metrics.md."""
    return "\n".join(_table(row) for row in _TABLES)


def _table(row: Row) -> str:
    lines = [f"| `{name}` | {unit} | {meaning} |" for name, unit, meaning in _TABLES[row]]
    return "\n".join([f"## {HEADINGS[row]}", "", "| metric | unit | meaning |", "|---|---|---|", *lines, ""])


_PLACE = frozenset(name for name, _, _ in _TABLES["every"])
_BEGIN, _END = "<!-- tables of graphs/runs/metrics.py -->", "<!-- end of the tables -->"


def with_tables(page: str) -> str:
    """A page with the tables between its two marks made anew."""
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n\n{tables()}\n{_END}{after}"


if __name__ == "__main__":
    written = Path(sys.argv[1])
    written.write_text(with_tables(written.read_text()))
