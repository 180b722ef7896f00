import json
from pathlib import Path

import pytest

from graphs.cli import main

pytestmark = pytest.mark.slow


def test_evaluating_a_run_gives_the_score_it_ended_with(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same tasks, weights and random keys: the checkpoint holds exactly what the run ended with."""
    main(["eval", str(finished)])
    (folder,) = finished.glob("eval-*")
    score = json.loads((folder / "summary.json").read_text())
    ended = json.loads((finished / "summary.json").read_text())
    assert score["heldout_detail"] == ended["heldout_after_detail"]
