"""Folders as runs leave them, written by hand: each test says what is in its files."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

STATUSES = ("finished", "truncated_length", "truncated_turns", "timed_out", "environment_error", "tool_error", "model_error",
            "cancelled")  # fmt: skip


def step_row(step: int, **figures: Any) -> dict[str, Any]:
    """A row of a trainer, as ``metrics.jsonl`` has it."""
    row = {
        "time": "2026-01-01T00:00:00+00:00", "attempt": 0, "phase": "rl", "stage": "trainer", "step": step, "loss": 0.5 / step,
        "grad_norm": 1.0, "num_episodes": 10, "reward_mean": 0.4, "reward_std": 0.1, "success": 0.4, "sampled_tokens": 100,
        "turns_mean": 2.0, "goodput": 0.5, "lag_mean": 0.0, "lag_max": 0, "entropy": 1.0, "kl": 1e-4, "step_s": 2.0,
        "gradient_s": 1.0, "proximal_s": 0.0, "update_s": 0.5, "wait_s": 0.5, "trained_tokens": 50, "no_signal_groups": 0.1,
    }  # fmt: skip
    return row | {f"episodes_{status}": 10 if status == "finished" else 0 for status in STATUSES} | figures


def write_rows(file: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def row() -> Callable[..., dict[str, Any]]:
    return step_row


@pytest.fixture
def left(tmp_path: Path) -> Callable[..., Path]:
    """Writes a run's folder: rows of metrics, and other files of rows or objects by their name."""

    def write(metrics: Iterable[Mapping[str, Any]] = (), name: str = "run", **files: Any) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(
            json.dumps({"program": "calculator", "config": files.pop("config", {}), "options": {}})
        )
        write_rows(folder / "metrics.jsonl", metrics)
        write_rows(folder / "attempts.jsonl", files.pop("attempts", [{"attempt": 0, "time": "2026-01-01T00:00:00+00:00"}]))
        for file, content in files.items():
            if isinstance(content, dict):
                (folder / f"{file}.json").write_text(json.dumps(content))
            else:
                write_rows(folder / f"{file}.jsonl", content)
        return folder

    return write
