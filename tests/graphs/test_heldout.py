"""Evaluation during training with everything real: the engine serves training and evaluation at once, and the swap waits."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from flow.trace import Trace, read_trace
from graphs.calculator import CalculatorConfig, calculator
from graphs.evaluate import EvaluateConfig
from graphs.heldout_config import HeldoutConfig
from stages.agents.sampling import SamplingConfig
from stages.checkpoint.store import versions, with_parameters
from stages.tools.delay import DelayConfig
from stages.train.gate import GateConfig

Run = Callable[..., Mapping[str, Any]]


def program(config: Callable[..., CalculatorConfig], heldout: HeldoutConfig, gate: GateConfig | None = None, **changes: Any):
    base = config()
    rl = base.rl.model_copy(update={"heldout": heldout, "gate": gate or GateConfig(), **changes})
    slow = DelayConfig(scale_s=0.03, max_s=0.1)  # of the calculator, so that an evaluation takes longer than a step
    return calculator(base.model_copy(update={"rl": rl, "delay": slow}))


def rows_of(folder: Path, stage: str) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if row["phase"] == "rl" and row["stage"] == stage]


@pytest.fixture
def folder(evaluated: Path) -> Path:
    """Of a run of four steps that is evaluated at versions 0, 2 and 4, 12 tasks twice each."""
    return evaluated


def spans(trace: Trace, track: str, name: str) -> list[tuple[int, int]]:
    return [
        (s.start_ns, s.end_ns)
        for s in trace.slices
        if trace.tracks[s.track].name.startswith(track) and s.name == name and s.end_ns is not None
    ]


@pytest.mark.slow
def test_training_decodes_while_a_version_is_evaluated_and_the_next_swap_waits(folder: Path) -> None:
    """At max_lag 0. In the trace: the swap waits, and turns of training and of the evaluation lie side by side before that."""
    trace, rows = read_trace(folder / "run.pftrace"), rows_of(folder, "heldout_scores")
    waits = spans(trace, "weights (sync wait)", "sync wait")
    assert len(waits) == 2, "version 4 is the last: nothing waits for its evaluation"
    for (start, end), row in zip(waits, rows[:2], strict=True):
        assert (end - start) / 1e9 == pytest.approx(row["sync_wait_s"], abs=0.02)
        # No swap in the engine lies within: it comes when the evaluation is over.
        assert not [began for began, _ in spans(trace, "weights (load)", "load") if start < began < end]
    heldout = spans(trace, "heldout_episodes/", "model")
    training = spans(trace, "episodes/", "model")
    assert heldout
    assert training
    both = [1 for a, b in training for c, d in heldout if a < d and c < b]
    assert len(both) > 20
    assert [row["sync_wait_s"] for row in rows][2] == 0


@pytest.mark.slow
def test_each_due_version_has_a_row_and_its_failures_in_the_denominator(folder: Path) -> None:
    """S40."""
    rows = rows_of(folder, "heldout_scores")
    assert [row["version"] for row in rows] == [0, 2, 4]
    for row in rows:
        assert row["heldout_episodes"] == 24
        assert row["heldout_low"] <= row["heldout"] <= row["heldout_high"]
        assert row["heldout_pass@1"] == pytest.approx(row["heldout"])
        assert row["heldout_pass@2"] >= row["heldout_pass@1"]
        assert row["heldout_s"] >= row["sync_wait_s"] >= 0


@pytest.mark.slow
def test_what_was_evaluated_is_not_counted_as_training(folder: Path) -> None:
    summary = json.loads((folder / "summary.json").read_text())
    assert sum(summary["episodes"].values()) == 4 * 4 * 4
    assert [row["step"] for row in rows_of(folder, "trainer")] == [1, 2, 3, 4]
    assert summary["stages"]["heldout_episodes"]["emitted"] == 3 * 24
    assert summary["ledger_balanced"] is True
    (told,) = summary["sources"].values()
    assert told["drawn"] == sum(told["ends"].values()) == summary["stages"]["prompts"]["emitted"]


@pytest.mark.slow
def test_the_summary_says_what_the_gate_did_and_the_best_weights_are_what_is_evaluated_after(folder: Path) -> None:
    summary, rows = json.loads((folder / "summary.json").read_text()), rows_of(folder, "heldout_scores")
    best = max(rows, key=lambda row: (row["heldout"], row["version"]))
    assert summary["gate"]["best"]["version"] == best["version"]
    assert versions(folder / "best")[-1] == best["version"]
    assert with_parameters(folder / "checkpoints")


@pytest.mark.slow
def test_equal_weights_get_equal_scores_whatever_came_before(
    config: Callable[..., CalculatorConfig], run: Run, tmp_path: Path
) -> None:
    """Keys are of the task and the attempt, not of how many evaluations there were: nothing is learned, nothing changes."""
    still = config().rl.trainer.model_copy(update={"learning_rate": 1e-30})
    heldout = HeldoutConfig(every=1, num_tasks=8, attempts=2, max_concurrency=4)
    run(program(config, heldout, steps=3, trainer=still), tmp_path / "run")
    told = [
        {name: row[name] for name in ("heldout", "heldout_tokens", "heldout_reward_mean")}
        for row in rows_of(tmp_path / "run", "heldout_scores")
    ]
    assert len(told) == 4
    assert told == [told[0]] * 4
    assert told[0]["heldout_tokens"] > 0


@pytest.mark.slow
def test_a_gate_that_stops_ends_the_run_and_the_summary_says_why(
    config: Callable[..., CalculatorConfig], run: Run, tmp_path: Path
) -> None:
    """The policy is untrained, so its mean reward is far below what is asked for."""
    gate = GateConfig(reward_min=1.5, patience=2)
    with pytest.raises(Exception, match=r"expected reward_mean of at least 1.5 \(gate.reward_min\); got .* at step 2"):
        run(program(config, HeldoutConfig(), gate, steps=4), tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["status"] == "stopped"
    assert summary["error"].startswith("GateClosed: expected reward_mean of at least 1.5 (gate.reward_min); got")
    assert list(summary["gate"]["breaches"]) == ["gate.reward_min"]


def test_a_quota_that_is_the_whole_engine_is_refused(config: Callable[..., CalculatorConfig]) -> None:
    with pytest.raises(
        ValueError, match=r"leaves training a part of the 20 units of pool 'engine', got heldout.max_concurrency=20"
    ):
        program(config, HeldoutConfig(every=1, max_concurrency=20)).phases[2].make(None)


def test_a_gate_that_compares_evaluations_needs_some(config: Callable[..., CalculatorConfig]) -> None:
    with pytest.raises(ValueError, match=r"got heldout.every=None; set it"):
        program(config, HeldoutConfig(), GateConfig(heldout_drop=0.1)).phases[2].make(None)


def test_a_branch_brings_no_warning(config: Callable[..., CalculatorConfig]) -> None:
    base = program(config, HeldoutConfig()).phases[2].make(None).build(quiet=True).warnings
    plan = program(config, HeldoutConfig(every=1, max_concurrency=4)).phases[2].make(None).build(quiet=True)
    assert plan.warnings == base


@pytest.mark.parametrize("config_type", [HeldoutConfig, EvaluateConfig])
def test_a_k_that_the_attempts_cannot_tell_is_refused(config_type: type[HeldoutConfig] | type[EvaluateConfig]) -> None:
    with pytest.raises(ValidationError, match=r"each k of pass_at from 1 to attempts=2; got 4"):
        config_type(attempts=2, pass_at=(1, 4))


def test_held_out_episodes_count_among_those_that_may_evict_each_other(config: Callable[..., CalculatorConfig]) -> None:
    """16 episodes of training fill the 16 slots; four more of the evaluation are too many, and that is told."""
    (warned,) = program(config, HeldoutConfig(every=1, max_concurrency=4)).phases[2].warnings
    assert "20 conversations at once over 16 engine slots" in warned
    assert program(config, HeldoutConfig(max_concurrency=4)).phases[2].warnings == ()


def test_sampling_is_that_of_training_but_for_its_seed_and_temperature() -> None:
    training = SamplingConfig(max_turns=3, temperature=0.7, seed=5)
    assert HeldoutConfig().sampling(training) == SamplingConfig(max_turns=3, temperature=0.7, seed=1)
    assert HeldoutConfig(temperature=0.0, seed=2).sampling(training) == SamplingConfig(max_turns=3, temperature=0.0, seed=2)
