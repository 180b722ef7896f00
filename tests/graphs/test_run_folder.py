"""Where a run writes: a folder that is its own."""

from pathlib import Path

import pytest

from graphs.run_folder import RunFolder


def test_of_two_runs_that_found_a_folder_empty_one_gets_it(tmp_path: Path) -> None:
    first, second = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "run")
    with first:
        with pytest.raises(FileExistsError, match=r"expected a new run folder, got .*/run, which has files in it"), second:
            pass
        first.begin("phase")
        first.reported("node", {"step": 1})
    assert (tmp_path / "run" / "metrics.jsonl").read_text().count("\n") == 1
    with pytest.raises(FileExistsError, match="which has files in it; choose another"):
        RunFolder(tmp_path / "run")
