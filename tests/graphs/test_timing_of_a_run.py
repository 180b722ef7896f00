"""Training with a lag of 0, for real: tools whose delays are drawn anew change no bit of it."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx

from graphs.calculator import calculator
from stages.models.names import named_leaves
from stages.records import Episode
from stages.tools.delay import DelayConfig
from stages.train.metrics import of_the_machine

pytestmark = pytest.mark.slow


async def odd_reward(episode: Episode) -> float:
    """One that tells all episodes apart, so that every token of them counts."""
    return float(np.sum(episode.ids * np.arange(1, len(episode.ids) + 1)) % 97) / 97


def trained(config: Any, run: Any, folder: Path, delay: DelayConfig, concurrency: int) -> tuple[list[dict[str, Any]], Any]:
    """(rows of the trainer without the figures of the clock, parameters at the end) of a short run from scratch."""
    rl = config().rl.model_copy(update={"max_concurrency": concurrency})
    program = calculator(config(delay=delay, rl=rl))
    warm, _, main, _ = program.phases
    run(dataclasses.replace(program, phases=(warm, main)), folder)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    kept = [
        {name: value for name, value in row.items() if not of_the_machine(name)} for row in rows if row["stage"] == "trainer"
    ]
    return kept, jax.tree.map(np.asarray, named_leaves(nnx.state(program.parts.model, nnx.Param)))


def test_delays_and_concurrency_change_no_number_and_no_bit_of_the_parameters(
    config: Any, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphs.calculator.exact_answer", odd_reward)
    rows, parameters = trained(config, run, tmp_path / "quick", DelayConfig(scale_s=0.0), 16)
    others, other = trained(config, run, tmp_path / "slow", DelayConfig(scale_s=0.005, shape=1.1, max_s=0.2), 10)
    assert others == rows
    assert {name: leaf.tobytes() for name, leaf in other.items()} == {name: leaf.tobytes() for name, leaf in parameters.items()}
    steps = [row for row in rows if row["phase"] == "rl"]
    assert len({row["grad_norm"] for row in steps}) == 3
    assert max(row["turns_mean"] for row in steps) > 1.1  # tools were called, so their delays were waited for
