"""A run that is cut off anywhere and gone on with from its latest commit ends as one that was never cut off."""

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from saved_program import Counted

from flow import Collect, Context, Failed, Freshness, Gathered, Graph, Retry
from flow.saving import Resumable, Saves
from flow.testing._killed import Kill, Life, Lived, killed


class Summing:
    """A sink whose weight is a function of all it was trained on, in order; it keeps the weight in a file of its own."""

    def __init__(self, clock: random.Random) -> None:
        self.weight, self.steps, self._clock = 1, [], clock
        self._step: list[tuple[int, tuple[int, ...]]] = []

    async def add(self, group: Gathered[int], context: Context) -> None:
        await asyncio.sleep(self._clock.choice([0, 0.2]))
        self._step.append((context.birth, group.members))

    async def finish(self, context: Context) -> int:
        await asyncio.sleep(self._clock.choice([0, 0.1]))  # a cancel here has changed nothing
        for birth, members in self._step:
            for value in members:
                self.weight = (self.weight * 31 + birth * 7 + value) % 1_000_003
        context.report({"step": len(self.steps), "weight": self.weight})
        self.steps.append(list(self._step))
        self._step = []
        return self.weight

    def state(self) -> int:
        return len(self.steps)

    def restore(self, state: int) -> None:
        assert state == len(self.steps)

    def save(self, folder: Path) -> Callable[[], None]:
        content = json.dumps([self.weight, self.steps])

        def write() -> None:
            folder.mkdir()
            (folder / "weight.json").write_text(content)

        return write

    def load(self, folder: Path) -> None:
        self.weight, steps = json.loads((folder / "weight.json").read_text())
        self.steps = [[(birth, tuple(members)) for birth, members in step] for step in steps]
        self._step = []


class Rows:
    """A watcher that is saved beside the graph."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []

    def committed(self, node: str, values: object) -> None: ...

    def reported(self, node: str, row: dict[str, int]) -> None:
        self.rows.append([row["step"], row["weight"]])

    def state(self) -> list[list[int]]:
        return self.rows

    def restore(self, state: list[list[int]]) -> None:
        self.rows = list(state)


def graph_of(sink: Summing, clock: random.Random, *, max_lag: int = 0) -> Graph:
    """Episodes whose result is a function of the weight they were made with, some of which fail at first."""

    async def play(number: int, context: Context) -> int | Failed[int]:
        await asyncio.sleep(clock.choice([0, 0, 0.3, 1]))
        version = context.read()
        if (number + context.member + context.retry) % 5 == 0:
            return Failed(0, "unlucky")
        return (version.value * 3 + number * 11 + context.member + 100 * context.retry) % 10_007

    graph = Graph("summing")
    cell = graph.latest("weight", int)
    numbers = graph.source("numbers", Counted(1000))
    members = graph.repeat("members", numbers, n=3)
    played = graph.stage("play", play, workers=5, reads=cell)
    groups = graph.group("groups", played, missing=Retry(2, then="drop"))
    trainer = graph.sink("trainer", sink, collect=Collect(2, steps=6))
    numbers >> members >> played >> groups >> trainer
    graph.feedback(trainer, cell, initial=lambda: sink.weight, freshness=Freshness(max_lag))
    return graph


def lives_of(folder: Path, kills: list[Kill], seed: int, *, every: int = 1) -> tuple[list[Lived], Summing, Rows]:
    """Kill the program at these; gives its lives, and the sink and the watcher of the last."""
    made: list[tuple[Summing, Rows]] = []
    clock = random.Random(seed)

    def begin() -> Life:
        made.append((Summing(clock), Rows()))
        return Life(graph_of(made[-1][0], clock), {"rows": made[-1][1]}, watchers=(made[-1][1],))

    return killed(begin, folder, kills, seed=seed, every=every), *made[-1]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[list[Lived], Summing, Rows]:
    """A run that is never stopped."""
    return lives_of(tmp_path_factory.mktemp("whole"), [], 0)


def test_what_declares_a_state_is_seen_as_such():
    assert isinstance(Counted(1), Resumable)
    assert isinstance(Summing(random.Random()), Saves)
    assert not isinstance(range(3), Resumable)


@pytest.mark.slow
def test_a_run_that_is_killed_at_any_point_of_saving_and_of_going_on_ends_as_one_that_never_was(ram, whole):
    """P2, P4, P6, S92, S94, S96, S100: at every point that there is, then in the restore, then somewhere in what follows."""
    deaths = 0
    for place in range(len(whole[0][0].points)):
        rnd = random.Random(place)
        restoring = Kill(point=("resume.begin", "resume.states", "resume.restored")[place % 3])
        kills = [Kill(nth=place + 1), restoring, *([Kill(nth=rnd.randint(4, 16))] if place % 2 else [])]
        lives, cut, rows = lives_of(ram / str(place), kills, place)
        assert (cut.steps, cut.weight, rows.rows) == (whole[1].steps, whole[1].weight, whole[2].rows), lives
        deaths += len(lives) - 1
    assert deaths > 75


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_run_that_is_cut_off_again_and_again_trains_the_same_steps_to_the_same_weight(ram, seed, whole):
    """P1, P2, P4, P6, S92, S95, S100: killed or suspended at times that nobody chose, with a commit now and then."""
    clock = random.Random(seed)
    kills = [Kill(2 * clock.random(), suspend=clock.random() < 0.5) for _ in range(20)]
    lives, cut, rows = lives_of(ram, kills, seed, every=1 + seed % 3)
    assert len(lives) > 4
    assert (cut.steps, cut.weight, rows.rows) == (whole[1].steps, whole[1].weight, whole[2].rows)
