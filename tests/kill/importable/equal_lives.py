"""When a training that was killed equals one that never was."""

from pathlib import Path

from lives import Life

from graphs.equal import doubled, unequal

RUN = Path("runs") / "it"


def check_equal(life: Life, unkilled: Life) -> None:
    """All that is logged, learned and trained is the same, and no row of a step is there twice."""
    assert unequal(unkilled.folder / RUN, life.folder / RUN) == []
    assert doubled(life.folder / RUN) == []
    assert life.trained == unkilled.trained
