"""Rows of work that is done again are moved aside, once, whatever comes in the middle of it."""

import json
import os
from pathlib import Path

import pytest

from graphs.runs.superseded import cut_back

ROWS = b'{"step":1}\n{"step":2}\n{"step":3}\n'
KEPT = len(b'{"step":1}\n')


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "metrics.jsonl").write_bytes(ROWS)
    return tmp_path / "metrics.jsonl"


def aside(file: Path) -> list[object]:
    return [json.loads(line) for line in file.with_name("superseded.jsonl").read_text().splitlines()]


def test_what_lies_behind_is_moved_and_the_rest_stays(file: Path) -> None:
    assert cut_back(file, KEPT) == 0
    assert file.read_bytes() == ROWS[:KEPT]
    assert aside(file) == [{"file": "metrics.jsonl", "row": {"step": 2}}, {"file": "metrics.jsonl", "row": {"step": 3}}]


def test_a_kill_between_moving_and_cutting_moves_nothing_twice(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "truncate", killed)
        with pytest.raises(KeyboardInterrupt):
            cut_back(file, KEPT)
    assert file.read_bytes() == ROWS
    cut_back(file, KEPT)
    assert file.read_bytes() == ROWS[:KEPT]
    assert len(aside(file)) == 2


def test_a_torn_row_is_kept_as_text_and_a_torn_end_of_the_file_aside_hides_nothing(file: Path) -> None:
    with file.open("ab") as rows:
        rows.write(b'{"ste')
    file.with_name("superseded.jsonl").write_bytes(b'{"file":"metrics.jsonl","ro')
    cut_back(file, len(ROWS))
    lines = file.with_name("superseded.jsonl").read_bytes().splitlines()
    assert json.loads(lines[-1]) == {"file": "metrics.jsonl", "torn": '{"ste'}
    assert len(lines) == 2


def test_what_a_power_cut_took_is_counted(file: Path) -> None:
    assert cut_back(file, len(ROWS) + 12) == 12
    assert file.read_bytes() == ROWS
    assert not file.with_name("superseded.jsonl").exists()
