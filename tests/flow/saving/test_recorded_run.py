"""What a run with a lag recorded, given to a sink again step by step, makes of it what the run made, to the last bit."""

import asyncio
import random
from pathlib import Path

import msgspec
import pytest
from saved_program import Counted

from flow import Collect, Context, Failed, Filtered, Freshness, Gathered, Graph, Retry, Run, Summary
from flow.saving import (
    CannotResume,
    Commits,
    Digest,
    Journal,
    Opened,
    RecordedSteps,
    Saving,
    Step,
    newest,
    read_journal,
    read_state,
)
from flow.testing import run_virtual
from flow.testing._threads import PlayedExecutor

STEPS = 12
Scored = tuple[int, ...]


class Summing:
    """A sink whose weight depends on all it was given, on the order of that, and on how old it was."""

    def __init__(self) -> None:
        self.weight = self.kept = 1

    def add(self, group: Scored, context: Context) -> None:
        self.take(context.birth, context.lag, group)

    def take(self, birth: int, lag: int | None, group: Scored) -> None:
        for value in group:
            self.weight = (self.weight * 31 + birth * 7 + value + 1000 * (lag or 0)) % 1_000_003

    def finish(self, context: Context) -> int:
        self.kept = self.weight
        return self.weight

    def digest(self) -> str:
        return str(self.kept)

    def state(self) -> int:
        return self.kept

    def restore(self, state: int) -> None:
        self.weight = self.kept = state


def run(folder: Path, seed: int, max_lag: int, cut_after_s: float | None, *, record: bool = True) -> Summary | None:
    """Go on from the latest commit, with delays and results drawn anew, up to a cut or to the end."""
    chance = random.Random(seed)

    async def play(number: int, context: Context) -> int | Failed[int]:
        await asyncio.sleep(chance.paretovariate(1.2) - 1)
        version = context.read()
        return Failed(0, "unlucky") if chance.random() < 0.1 else version.value * 3 + chance.randrange(1000)

    async def score(group: Gathered[int], context: Context) -> Scored | Filtered:
        """A judge: another answer each time it is asked."""
        await asyncio.sleep(chance.random())
        return tuple(member * 10 + chance.randrange(10) for member in group.members)

    async def weigh(group: Scored, context: Context) -> Scored | Filtered:
        return Filtered("no signal") if group[0] % 5 == 0 else group

    async def main() -> Summary | None:
        with Commits(folder / "checkpoints", every=2) as commits:
            before = commits.latest()
            with Journal(folder / "journal", after=0 if before is None else before.number, record=record) as journal:
                sink, graph = Summing(), Graph("line")
                cell = graph.latest("weight", int)
                numbers = graph.source("numbers", Counted())
                members = graph.repeat("members", numbers, n=2)
                played = graph.stage("play", play, workers=6, reads=cell, deadline_s=None)
                groups = graph.group("groups", played, missing=Retry(3, then="drop"))
                scored = graph.stage("score", score, workers=3)
                weighed = graph.stage("weigh", weigh)
                trainer = graph.sink("sink", sink, collect=Collect(3, steps=STEPS))
                numbers >> members >> played >> groups >> scored >> weighed >> trainer
                graph.edge(played, groups, durable=True)
                graph.edge(scored, weighed, durable=True)
                graph.feedback(trainer, cell, initial=lambda: sink.weight, freshness=Freshness(max_lag))
                running = Run(graph.build(quiet=True), saving=Saving(commits, resume=before, journal=journal), stall_s=None)
                running.threads = PlayedExecutor

                def end() -> None:
                    if chance.random() < 0.3:
                        running.suspend()
                    else:
                        journal.__exit__(None, None, None)  # the process is dead: not a word more goes to the disk
                        running.abort(RuntimeError("the lights went out"))

                if cut_after_s is not None:
                    asyncio.get_running_loop().call_later(cut_after_s, end)
                try:
                    return await running.finish()
                except RuntimeError:
                    return None

    return run_virtual(main(), seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("max_lag", [0, 1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_every_step_of_a_run_that_was_killed_again_and_again_comes_out_as_it_did(tmp_path: Path, seed: int, max_lag: int):
    clock = random.Random(seed)
    for number in range(40):
        summary = run(tmp_path, 1000 * seed + number, max_lag, 8 * clock.random())
        if summary is not None and summary.status == "completed":
            break
    else:
        assert run(tmp_path, 7, max_lag, None) is not None
    recorded = RecordedSteps(tmp_path / "journal", "line", "score", "sink")
    assert [step.number for step in recorded.steps] == list(range(1, STEPS + 1))
    sink, values = Summing(), recorded.values(recorded.steps)
    for step in recorded.steps:
        for wanted in step.items:
            item, value = next(values)
            assert item == wanted
            sink.take(item.birth, item.lag, msgspec.msgpack.decode(value, type=Scored))
        sink.kept = sink.weight
        assert sink.digest() == step.digest
    assert next(values, None) is None
    assert len({item.birth for step in recorded.steps for item in step.items}) == 3 * STEPS


@pytest.mark.slow
def test_the_runs_are_ones_that_were_killed_in_the_middle_and_in_which_items_aged(tmp_path: Path):
    clock = random.Random(1)
    for number in range(40):
        run(tmp_path, 1000 + number, 2, 8 * clock.random())
    assert sum(isinstance(record, Opened) for record in read_journal(tmp_path / "journal")) > 2
    recorded = RecordedSteps(tmp_path / "journal", "line", "score", "sink")
    assert {item.lag for step in recorded.steps for item in step.items} == {0, 1, 2}


def test_a_run_that_records_nothing_notes_neither_steps_nor_digests(tmp_path: Path):
    for name, record in (("recorded", True), ("plain", False)):
        assert run(tmp_path / name, 0, 1, None, record=record) is not None
        noted = [record for record in read_journal(tmp_path / name / "journal") if isinstance(record, Step | Digest)]
        assert len(noted) == (2 * STEPS if record else 0)


def test_one_state_of_a_commit_is_read_without_its_graph_and_another_is_refused(tmp_path: Path):
    assert run(tmp_path, 0, 0, None) is not None
    commit = newest(tmp_path / "checkpoints")
    assert commit is not None
    steps = RecordedSteps(tmp_path / "journal", "line", "score", "sink").steps
    assert str(read_state(commit, "sink", Summing())) == steps[-1].digest
    for name in ("nobody", "numbers"):
        one = Named() if name == "numbers" else Summing()
        with pytest.raises(CannotResume, match=f"{name}: expected a state of this, got none, or another .*; read it with what"):
            read_state(commit, name, one)


class Named:
    """Declares states of another type than ``Numbers``."""

    def state(self) -> str:
        return ""

    def restore(self, state: str) -> None: ...
