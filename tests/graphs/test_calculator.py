import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flow import Run
from flow.trace import read_trace
from graphs.calculator import calculator

pytestmark = pytest.mark.slow  # one real run of a tiny policy serves most of these

PROMISED = """
graph status steps wall_s setup_s heldout_before heldout_after episodes sampled_tokens trained_tokens goodput lag_mean lag_max
max_lag ledger_balanced loop_lag_max_ms stages peak_rss_mb seed versions
"""


def test_the_summary_holds_what_is_promised(summary: Mapping[str, Any]) -> None:
    assert [key for key in PROMISED.split() if key not in summary] == []
    assert summary["status"] == "completed"
    assert summary["steps"] == 3
    assert summary["ledger_balanced"] is True


def test_every_episode_of_every_step_is_in_the_summary_once(summary: Mapping[str, Any]) -> None:
    """3 steps of 4 groups of 4; with no failure nothing more is started."""
    assert sum(summary["episodes"].values()) == 48
    assert summary["stages"]["episodes"]["emitted"] == 48
    assert summary["stages"]["groups"]["emitted"] == 12


def test_shares_of_time_add_up(summary: Mapping[str, Any]) -> None:
    for stage in summary["stages"].values():
        assert sum(value for key, value in stage.items() if key.endswith("_share")) == pytest.approx(1.0)


def test_metrics_have_one_row_a_step_in_order(finished: Path) -> None:
    rows = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if row["phase"] == "rl" and row["stage"] == "trainer"] == [1, 2, 3]
    assert [row["step"] for row in rows if row["phase"] == "warm_start" and row["stage"] == "trainer"] == list(range(1, 31))


def test_what_was_drawn_is_what_was_trained_and_what_ended_otherwise(finished: Path, summary: Mapping[str, Any]) -> None:
    """In the summary, and as far as it goes in the rows of the steps."""
    (told,) = summary["sources"].values()
    assert list(summary["sources"]) == ["arithmetic"]
    assert told["drawn"] == summary["stages"]["prompts"]["emitted"] == sum(told["ends"].values())
    assert told["trained"] + told["ends"].get("silent", 0) == 12
    assert told["episodes"] == summary["episodes"]
    rows = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    of_rl = [row for row in rows if row["phase"] == "rl" and row["stage"] == "trainer"]
    for name in ("trained", "silent"):
        assert sum(row[f"{name}/arithmetic"] for row in of_rl) == told["ends"].get(name, 0)
    assert sum(row["drawn/arithmetic"] for row in of_rl) <= told["drawn"]


def test_transcripts_agree_with_the_summary(finished: Path, summary: Mapping[str, Any]) -> None:
    rows = [json.loads(line) for line in (finished / "episodes.jsonl").read_text().splitlines()]
    of_rl = [row for row in rows if row["phase"] == "rl"]
    assert len(of_rl) == 48
    assert sum(row["num_sampled"] for row in of_rl) == summary["sampled_tokens"]
    assert all(row["messages"][0]["role"] == "user" for row in rows)


def test_every_stage_has_spans_in_the_trace_and_the_engine_too(finished: Path) -> None:
    trace = read_trace(finished / "run.pftrace")
    named = {number: track.name for number, track in trace.tracks.items()}
    spans = {named[s.track].split("/")[0] for s in trace.slices}
    for stage in ("prompts", "members", "episodes", "groups", "rewards", "advantages", "batches", "trainer", "engine"):
        assert stage in spans, stage
    inside = {s.name for s in trace.slices if named[s.track].startswith("episodes/")}
    assert {"episodes", "model", "tool"} <= inside


def test_a_run_with_the_same_seed_gives_the_same_numbers(
    finished: Path, tmp_path: Path, config: Callable[..., Any], run: Callable[..., Mapping[str, Any]]
) -> None:
    """At max_lag 0, whatever the timing of the tool: it is other here, and so is the order in which episodes end."""
    slower = config(delay=config().delay.model_copy(update={"scale_s": 0.01, "max_s": 0.1}))
    run(calculator(slower), tmp_path / "again")
    first, second = (
        [row for line in (folder / "metrics.jsonl").read_text().splitlines() if (row := json.loads(line))["stage"] != "health"]
        for folder in (finished, tmp_path / "again")
    )
    exact = ("loss", "grad_norm", "reward_mean", "entropy", "kl", "sampled_tokens", "trained_tokens")
    for one, other in zip(first, second, strict=True):
        assert {key: one.get(key) for key in exact} == {key: other.get(key) for key in exact}
    assert any(np.isfinite(row["loss"]) for row in first if row.get("loss") is not None)


def test_evaluation_may_truncate_and_stop_on_strings(config: Callable[..., Any]) -> None:
    """The engine of a ready graph can read what it samples; every attempt is finished or cut, none failed."""
    small = config()
    sampling = small.evaluate.sampling.model_copy(update={"stop_strings": ("1", "a"), "top_k": 20, "top_p": 0.9, "min_p": 0.01})
    program = calculator(config(evaluate=small.evaluate.model_copy(update={"sampling": sampling})))
    phase = next(phase for phase in program.phases if phase.name == "heldout_before")

    async def main() -> Mapping[str, Any]:
        assert program.parts is not None
        program.parts.load()
        async with program.parts.engine:
            graph = phase.make(None)
            await phase.prepare()
            await Run(graph.build()).finish()
        return phase.result()

    detail = asyncio.run(main())["heldout_before_detail"]
    assert sum(detail.statuses.values()) == 16
    assert set(detail.statuses) <= {"finished", "truncated_length", "truncated_turns"}
