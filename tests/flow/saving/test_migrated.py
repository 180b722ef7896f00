"""A run goes on in a graph that calls things otherwise, and declares other states, where it is said what became of what."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from saved_program import Counted

from flow import Collect, Context, Freshness, Gathered, Graph, Run
from flow.saving import CannotResume, Commits, Saving
from flow.testing import run_virtual


class Place(msgspec.Struct, frozen=True):
    """An epoch of ten, and where in it."""

    epoch: int
    index: int


class Epochs(Counted):
    """A source that counts, as a later version of the program has it."""

    def state(self) -> Place:
        return Place(*divmod(self.drawn, 10))

    def restore(self, state: Place) -> None:
        self.drawn = 10 * state.epoch + state.index


class Total:
    """A sink whose weight is the sum of all it was given."""

    def __init__(self) -> None:
        self.weight = self.under_way = 0

    def add(self, group: Gathered[int], context: Context) -> None:
        self.under_way += sum(group.members)

    def finish(self, context: Context) -> int:
        self.weight, self.under_way = self.weight + self.under_way, 0
        return self.weight

    def state(self) -> int:
        return self.weight

    def restore(self, state: int) -> None:
        self.weight = state


class Forgetful(Total):
    """One that declares none."""

    state = restore = None


def play(number: int, context: Context) -> int:
    return number


def graph_of(names: Iterator[str], source: Counted, sink: Total, steps: int) -> Graph:
    """The same graph, whatever it is called by."""
    graph = Graph(next(names))
    cell = graph.latest(next(names), int)
    numbers = graph.source(next(names), source)
    members = graph.repeat(next(names), numbers, n=2)
    played = graph.stage(next(names), play, reads=cell)
    groups = graph.group(next(names), played)
    end = graph.sink(next(names), sink, collect=Collect(3, steps=steps))
    numbers >> members >> played >> groups >> end
    graph.feedback(end, cell, initial=0, freshness=Freshness(1))
    return graph


BEFORE = ("sums", "weight", "numbers", "members", "play", "groups", "total")
NOW = ("totals", "value", "counted", "pairs", "played", "pairs_whole", "sum")


def run(folder: Path, names: tuple[str, ...], source: Counted, sink: Total, steps: int, **saving: Any) -> None:
    async def main() -> None:
        with Commits(folder) as commits:
            plan = graph_of(iter(names), source, sink, steps).build(quiet=True)
            await Run(plan, saving=Saving(commits, resume=commits.latest(), **saving)).finish()

    run_virtual(main())


def from_number(drawn: int) -> Mapping[str, int]:
    return {"epoch": drawn // 10, "index": drawn % 10}


def test_names_and_states_that_changed_are_taken_over_where_it_is_said_how(tmp_path):
    """P5: a difference that is migrated; no number is drawn twice, and none is left out."""
    source, sink = Epochs(), Total()
    run(tmp_path, BEFORE, Counted(), Total(), steps=5)
    run(tmp_path, NOW, source, sink, 9, renamed=dict(zip(BEFORE, NOW, strict=True)), migrate={"counted": from_number})
    assert sink.weight == 2 * sum(range(9 * 3))


@pytest.mark.parametrize(
    ("names", "source", "sink", "saving", "refused"),
    [
        (NOW, Counted(), Total(), {}, "name was sums and is totals"),
        (BEFORE, Epochs(), Total(), {}, "'numbers' cannot take over what it saved (NotResumable: "),
        (BEFORE, Epochs(), Total(), {"migrate": {"numbers": lambda drawn: {"epoch": drawn}}}, "'numbers' cannot take over"),
        (BEFORE, Counted(), Forgetful(), {}, "a state of 'total' was saved, which declares none now"),
    ],
    ids=["names", "state", "wrong", "gone"],
)
def test_what_nobody_says_how_to_take_over_is_refused(tmp_path, names, source, sink, saving, refused):
    """P5."""
    run(tmp_path, BEFORE, Counted(), Total(), steps=2)
    with pytest.raises(CannotResume) as error:
        run(tmp_path, names, source, sink, 4, **saving)
    assert refused in str(error.value)


def test_a_state_that_is_new_begins_as_is_said_and_one_that_is_gone_is_forgotten(tmp_path):
    """P5."""
    sink = Total()
    run(tmp_path, BEFORE, Counted(), Forgetful(), steps=2)
    run(tmp_path, BEFORE, Counted(), sink, 3, migrate={"total": lambda nothing: 1000})
    assert sink.weight == 1000 + 2 * (6 + 7 + 8)
    run(tmp_path, BEFORE, Counted(), Forgetful(), 4, migrate={"total": lambda state: None})
