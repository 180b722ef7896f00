"""Weights & Biases in offline mode: its own files, read back."""

import json
import math
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from graphs.loggers.logger import Told
from graphs.loggers.wandb import open_wandb

wandb = pytest.importorskip("wandb")
pytestmark = [pytest.mark.extra, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody is asked for a key, and nothing leaves the machine."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    for name in ("CACHE", "CONFIG", "DATA"):
        monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path / "own"))


def records(content: bytes) -> Iterator[bytes]:
    """Records of a file in LevelDB's log format, as W&B writes it: 7 bytes, then blocks of 32 KiB of parts of records."""
    whole, at = b"", 7
    while at < len(content):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, size, kind = struct.unpack("<IHB", content[at : at + 7])
        if at + 7 + size > len(content):
            return  # still being written
        whole += content[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # a whole one, or the last part
            yield whole
            whole = b""


def written(file: Path) -> list[Any]:
    """What W&B wrote, once its own process has: the last record says that the run is over."""
    from wandb.proto import wandb_internal_pb2

    deadline = time.monotonic() + 20
    while True:
        found = [wandb_internal_pb2.Record.FromString(content) for content in records(file.read_bytes())]
        if any(record.HasField("exit") for record in found):
            return found
        assert time.monotonic() < deadline, f"{file} is not complete"
        time.sleep(0.05)


def histories(folder: Path) -> list[tuple[str, list[dict[str, Any]]]]:
    """Id and logged rows of each file of a run, in the order of the files."""
    found = []
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.parent.name):
        content = written(file)
        (name,) = [record.run.run_id for record in content if record.HasField("run")]
        items = [record.history.item for record in content if record.HasField("history")]
        found.append((name, [{i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in row} for row in items]))
    return found


def test_rows_are_logged_by_phase_and_kind_and_a_run_that_is_gone_on_with_is_the_same_run_without_doubled_steps(
    told: Callable[..., Told], steps: Any, healthy: Any, tmp_path: Path
) -> None:
    """S43 too. Killed after step 3, gone on with after the commit of step 2."""
    logger = open_wandb(told())
    for row in (steps(1), steps(2, reward_mean=math.nan, loss=math.inf), steps(3), healthy(30.0)):
        logger.row(row)
    logger.close({"status": "failed", "steps": 3})
    again = open_wandb(told(attempt=1, rows=[steps(1), steps(2)], superseded=[steps(3)]))
    for number in (3, 4):
        again.row(steps(number))
    again.close({"status": "completed", "steps": 4})
    (first, before), (second, after) = histories(tmp_path)
    assert first == second == (tmp_path / "wandb" / "wandb-run-id").read_text()
    logged = [row["rl/step/step"] for row in (*before, *after) if "rl/step/step" in row]
    assert logged == [1, 2, 3, 4]
    assert math.isnan(float(before[1]["rl/step/reward_mean"]))
    assert math.isinf(float(before[1]["rl/step/loss"]))
    assert before[3]["rl/health/open_groups"] == 3


def test_without_a_key_nobody_is_asked_for_one_and_it_is_offline(
    told: Callable[..., Told], steps: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    logger = open_wandb(told())
    logger.row(steps(1))
    logger.close({"status": "completed"})
    assert len(histories(tmp_path)) == 1


def test_a_logger_that_is_closed_leaves_no_process(told: Callable[..., Told], steps: Any) -> None:
    before = set(psutil.Process().children(recursive=True))
    logger = open_wandb(told())
    logger.row(steps(1))
    assert set(psutil.Process().children(recursive=True)) > before
    logger.close({"status": "completed"})
    assert set(psutil.Process().children(recursive=True)) <= before


def test_a_logger_that_is_closed_leaves_a_run_of_the_users_own_alone(
    told: Callable[..., Told], steps: Any, tmp_path: Path
) -> None:
    with wandb.init(project="own", dir=str(tmp_path), reinit="create_new", settings=wandb.Settings(silent=True)) as own:
        logger = open_wandb(told())
        logger.row(steps(1))
        logger.close({"status": "completed"})
        own.log({"loss": 1.0})
    wandb.teardown()
    assert len(histories(tmp_path)) == 2
