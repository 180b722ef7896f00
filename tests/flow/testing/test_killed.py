"""Programs that are killed on purpose: what each life sees of the ones before it, and what the kit finds."""

import pytest
from saved_program import Counted, Sum, square

from flow import Collect, Graph
from flow.saving import complete
from flow.testing import Kill, Life, killed

TRAINED = [number * number for number in range(24)]


def program(sinks: list[Sum], source: type[Counted] = Counted):
    """Begins a life of the squares of numbers, and keeps its sink."""

    def begin() -> Life:
        sinks.append(Sum())
        graph = Graph("sums")
        numbers, squares = graph.source("numbers", source()), graph.stage("squares", square, workers=3, order="input")
        numbers >> squares >> graph.sink("total", sinks[-1], collect=Collect(2, steps=12))
        return Life(graph)

    return begin


def test_each_life_goes_on_from_what_the_one_before_had_on_the_disk(tmp_path):
    sinks: list[Sum] = []
    kills = [Kill(point="commit.renamed", nth=2), Kill(at_s=1.0), Kill(point="resume.states"), Kill(at_s=2.5, suspend=True)]
    lives = killed(program(sinks), tmp_path, kills)
    assert [None if life.summary is None else life.summary.status for life in lives] == [
        None,
        None,
        None,
        "suspended",
        "completed",
    ]
    assert [lives[0].points.count("commit.renamed"), lives[2].points[-1]] == [2, "resume.states"]
    assert lives[1].seconds == pytest.approx(1.0, abs=0.2)
    assert (sinks[-1].taken, sinks[-1].total) == (TRAINED, sum(TRAINED))
    assert complete(lives[-1].folder / "checkpoints")[-1].number > complete(lives[1].folder / "checkpoints")[-1].number


def test_what_a_dying_life_still_does_is_not_seen_by_the_next(tmp_path):
    """It was killed while it wrote; the half of a commit that it then gave up is still there for the next, and is swept."""
    lives = killed(program([]), tmp_path, [Kill(point="commit.moment", nth=3)])
    assert sorted(path.name for path in (lives[0].folder / "checkpoints").iterdir()) == ["000001", "000002", "lock"]
    assert [commit.number for commit in complete(lives[1].folder / "checkpoints")] == [12, 13], "the third was never there"


def test_a_life_that_comes_to_its_end_is_the_last(tmp_path):
    lives = killed(program([]), tmp_path, [Kill(at_s=1e6), Kill(at_s=1.0)])
    assert [life.summary.status for life in lives] == ["completed"]


def test_a_source_that_forgets_where_it_was_is_found(tmp_path):
    class Forgets(Counted):
        def restore(self, state: int) -> None: ...

    sinks: list[Sum] = []
    killed(program(sinks, Forgets), tmp_path, [Kill(point="commit.retained", nth=2)])
    assert sinks[-1].taken != TRAINED


def test_an_error_says_in_which_life_it_came(tmp_path):
    class Breaks(Counted):
        def restore(self, state: int) -> None:
            raise ValueError("no such place")

    with pytest.raises(ValueError, match="cannot take over what it saved") as failed:
        killed(program([], Breaks), tmp_path, [Kill(at_s=2.0)], seed=7)
    assert failed.value.__notes__[-1].startswith("in life 1 of [Kill(at_s=2.0")
    assert failed.value.__notes__[-1].endswith("seed 7, every 1")
