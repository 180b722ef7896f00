"""Every source: any interleaving of draws, saves and restores, in one object or a new one, gives what an unbroken run gives."""

from collections.abc import Callable
from itertools import count
from typing import get_type_hints

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flow._codec import Codec
from flow._types import hints_of
from flow.saving._declared import check_resumable
from stages.arrays import ARRAYS
from stages.records import Episode, Example, Group, Status, Task
from stages.tasks.curriculum import Curriculum, CurriculumConfig
from stages.tasks.example_sets import ExampleSets
from stages.tasks.generated import Generated
from stages.tasks.iterated import Replayed, Stateful
from stages.tasks.mixture import Mixture
from stages.tasks.source import Tasks

LEVELS = ("easy", "hard", "odd")


def tasks(name: str, number: int) -> list[Task]:
    return [Task(f"{name}{index}", "?") for index in range(number)]


def made(seed: int, index: int) -> Task:
    return Task(f"{seed}-{index}", "?")


class Lines:
    """Values that know their place."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self):
        while self.at < 40:
            self.at += 1
            yield made(0, self.at)

    def state(self):
        return self.at

    def restore(self, state):
        self.at = state


def mixture(exhausted="go_on", inner=None) -> Mixture:
    parts = {
        "a": (Tasks(tasks("a", 5), 1), 3),
        "b": (Tasks(tasks("b", 3), 2, epochs=2), 0.7),
        "c": (inner or Generated(made, 4, size=9), 1.3),
    }
    return Mixture(parts, seed=2, exhausted=exhausted)


def curriculum(endless: bool = True) -> Curriculum:
    sizes = {level: None if endless or level == "odd" else 12 for level in LEVELS}
    buckets = {level: Generated(made, seed, sizes[level]) for seed, level in enumerate(LEVELS)}
    return Curriculum(buckets, CurriculumConfig(min_share=0.2, window=4, ahead=3))


def group(birth: int, difficulty: str | None) -> Group:
    """Succeeds by a rule of the birth number."""
    none = np.zeros(0, np.float32)
    members = [
        Episode(
            Task(str(birth), "?", difficulty=difficulty), birth, member, 0, none, none, none, none, (), (), Status.FINISHED,
            reward=float((birth * 7 + member * 3) % 5 < 2),
        )
        for member in range(4)
    ]  # fmt: skip
    return Group(birth, tuple(members))


def play(source, births: int, task) -> None:
    """What a run tells a curriculum: each group, and the end of each step of three."""
    if isinstance(source, Curriculum):
        source.observe(group(births, task.difficulty))
        if births % 3 == 2:
            source.step(births // 3 + 1)


def examples(number: int) -> list[Example]:
    return [Example(str(index), ()) for index in range(number)]


SOURCES: dict[str, Callable[[], object]] = {
    "tasks": lambda: Tasks(tasks("t", 6), 1),
    "tasks in stretches": lambda: Tasks(tasks("t", 6), 1, stretches=(2, 3, 1)),
    "tasks of two epochs": lambda: Tasks(tasks("t", 6), 1, epochs=2),
    "sets of examples": lambda: ExampleSets(examples(7), 3, 1),
    "generated": lambda: Generated(made, 3),
    "generated, some": lambda: Generated(made, 3, size=11),
    "replayed": lambda: Replayed(lambda: (made(0, index) for index in count())),
    "stateful": lambda: Stateful(Lines()),
    "mixture": mixture,
    "mixture that stops": lambda: mixture("stop"),
    "curriculum": curriculum,
    "curriculum that ends in part": lambda: curriculum(endless=False),
    "mixture of mixtures": lambda: mixture(inner=mixture("stop")),
    "curriculum in a mixture": lambda: mixture(inner=curriculum(endless=False)),
}
ENDING = ("tasks of two epochs", "generated, some", "stateful", "mixture that stops")
MOVES = st.lists(st.sampled_from(("draw", "draw", "draw", "save", "restore", "restart")), max_size=60)


def drawn(source) -> object:
    try:
        return source.draw()
    except StopIteration:
        return None


def unbroken(make: Callable[[], object], length: int) -> list[object]:
    source, values = make(), []
    for number in range(length):
        values.append(drawn(source))
        play(source, number, values[-1])
    return values


@pytest.mark.slow
@pytest.mark.parametrize("kind", SOURCES)
@given(moves=MOVES)
@settings(max_examples=20, deadline=None)
def test_draws_saves_and_restores_in_any_order_give_what_an_unbroken_run_gives(kind, moves):
    """S92, S93, S95. A state is written and read back, as a snapshot does it; ``restart`` begins with a new object."""
    make = SOURCES[kind]
    whole = unbroken(make, 60)
    source, place = make(), 0
    saved, saved_place = msgspec.msgpack.encode(source.state()), 0
    for move in moves:
        if move == "draw":
            value = drawn(source)
            assert value == whole[place]
            play(source, place, value)
            place += 1
        elif move == "save":
            saved, saved_place = msgspec.msgpack.encode(source.state()), place
        else:
            if move == "restart":
                source = make()
            source.restore(msgspec.msgpack.decode(saved, type=get_type_hints(source.state)["return"]))
            place = saved_place


@pytest.mark.parametrize("kind", SOURCES)
def test_a_source_passes_the_check_for_resume(kind):
    """B7: and the type that it declares for its state is one that a commit can hold."""
    source = SOURCES[kind]()
    check_resumable(source, f"battery.{kind}")
    for _ in range(5):
        drawn(source)
    codec = Codec(hints_of(source.state)[1], lambda *told: AssertionError(told), ARRAYS)
    assert codec.encode(codec.decode(codec.encode(source.state()))) == codec.encode(source.state())


@pytest.mark.parametrize("kind", SOURCES)
def test_to_ask_for_the_state_changes_nothing(kind):
    asked, whole = SOURCES[kind](), unbroken(SOURCES[kind], 30)
    for number, value in enumerate(whole):
        assert asked.state() == asked.state()
        assert drawn(asked) == value
        play(asked, number, value)


@pytest.mark.parametrize("kind", ENDING)
def test_what_is_over_stays_over(kind):
    source = SOURCES[kind]()
    assert None in [drawn(source) for _ in range(100)]
    assert [drawn(source) for _ in range(3)] == [None] * 3
