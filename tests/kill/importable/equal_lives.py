"""When a training that was killed equals one that never was."""

from collections import Counter
from pathlib import Path

from flow.testing import Process
from graphs.bench.recovery.executions import made_again, trained
from graphs.runs.equal import doubled, unequal

RUN = Path("runs") / "it"
TRAINED = "0 "
"""What the names of executions begin with that are trained; those of an evaluation come again in the next one."""


CONCURRENCY = 8
"""Episodes at once, each of which a kill may catch between its end and its record."""


def check_equal(life: Process, unkilled: Process) -> None:
    """All that is logged, learned and trained is the same, and no row of a step is there twice."""
    assert unequal(unkilled.folder / RUN, life.folder / RUN) == []
    assert doubled(life.folder / RUN) == []
    assert trained(life) == trained(unkilled)


def check_executions(life: Process, unkilled: Process, kills: int) -> None:
    """No attempt was executed twice, and none made again that was noted before one of so many kills."""
    often = Counter(without_attempt(name) for name in unkilled.told("begun"))
    begun = Counter(life.told("begun"))
    assert {name: count for name, count in begun.items() if count > often[without_attempt(name)]} == {}
    assert len(made_again(life, "ended", TRAINED)) <= kills * CONCURRENCY


def without_attempt(name: str) -> str:
    """An execution, whichever attempt it is."""
    return name.rpartition(" ")[0]
