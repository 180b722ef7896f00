"""Rule B7: what of a graph cannot be saved is told before anything runs, all of it at once."""

from collections.abc import Callable
from pathlib import Path

import pytest

from flow import BuildError, Collect, Context, Graph, Processes, Run
from flow.saving import Commits, Saving


class Tally:
    """A stage with a state."""

    def __call__(self, number: int, context: Context) -> int:
        return number

    def state(self) -> int:
        return 0

    def restore(self, state: int) -> None: ...


class Unsaid(Tally):
    def state(self):
        return 0


class Model:
    """A sink that saves more than its state."""

    def add(self, number: int, context: Context) -> None: ...

    def finish(self, context: Context) -> int:
        return 0

    def state(self) -> int:
        return 0

    def restore(self, state: int) -> None: ...

    def save(self, folder: Path) -> Callable[[], None]:
        return lambda: None

    def load(self, folder: Path) -> None: ...


def opens(number: int, context: Context) -> int | list[int] | tuple[int, ...]:
    return [number]


def untold(number: int, context: Context):
    return number


def broken() -> Graph:
    graph = Graph("rl")
    numbers = graph.source("numbers", (number for number in range(3)))
    opened = graph.stage("opens", opens)
    told = graph.stage("untold", untold)
    counted = graph.stage("counted", Tally(), placement=Processes())
    unsaid = graph.stage("unsaid", Unsaid())
    both = graph.broadcast("both", unsaid)
    numbers >> told >> counted >> unsaid >> both
    both >> graph.sink("model", Model(), collect=Collect(1, steps=1))
    both >> graph.sink("moment", Model(), collect=Collect(1, steps=1))
    both >> opened >> graph.sink("end", lambda numbers, context: None)
    return graph


def refused(graph: Graph, folder: Path, **settings: object) -> BuildError:
    with pytest.raises(BuildError) as caught:
        Run(graph.build(quiet=True), saving=Saving(Commits(folder), **settings))
    return caught.value


def test_all_that_cannot_be_saved_is_told_at_once(tmp_path):
    """B7."""
    faults = {fault.path: fault for fault in refused(broken(), tmp_path, beside={"rows": object()}).faults}
    told = {path: (fault.expected, fault.got) for path, fault in faults.items()}
    assert told.pop("rl.opens.out")[1].startswith(
        "int | list[int] | tuple[int, ...]: Type unions may not contain more than one array"
    )
    declared = "a declared type, to be saved"
    assert told == {
        "rl.numbers.out": (declared, "anything (untyped)"),
        "rl.untold.out": (declared, "anything (untyped)"),
        "rl.unsaid.state()": (declared, "anything (untyped)"),
        "rl.numbers": (
            "a source that declares its state, with state() and restore(state), or a sequence",
            "generator without state() and restore()",
        ),
        "rl.counted": (
            "a stage with a state to be on the loop or on threads",
            "one in processes, where its state cannot be seen",
        ),
        "rl.moment": ("a name that is no file of a commit", "'moment'"),
        "rl.beside rows": ("what declares a state, with state() and restore(state)", "object without state() and restore()"),
        "rl": ("one sink that saves more than its state, since a commit belongs to a step of it", "model and moment"),
    }
    assert all(fault.rule == "B7" and fault.remedy for fault in faults.values())
    assert all(fault.where.startswith("test_check_saving.py:") for path, fault in faults.items() if "beside" not in path)


def test_nothing_of_it_matters_where_nothing_is_saved():
    Run(broken().build(quiet=True))
