"""Going on from a commit: what is refused, all of it at once; and what may change, which then is as it is declared now."""

import asyncio
from pathlib import Path

import pytest
from probes import Slowly
from saved_program import Counted, Program, Sum, square

from flow import Collect, Context, Cost, Graph, Items, Run, Threads
from flow.saving import CannotResume, Commits, Saving, complete, differences, newest, outline
from flow.testing import run_virtual
from flow.testing._threads import PlayedExecutor

TRAINED = [number * number for number in range(8)]


@pytest.fixture
def suspended(tmp_path) -> Path:
    """Commits of a program that was suspended in its second step."""
    assert Program(tmp_path).live(suspend_after_s=2.0).status == "suspended"
    return tmp_path


class Rows:
    def __init__(self) -> None:
        self.rows = [1, 2]

    def state(self) -> list[int]:
        return self.rows

    def restore(self, state: list[int]) -> None:
        self.rows = state


def refused(program: Program) -> list[str]:
    """What is refused, by its parts."""
    with pytest.raises(CannotResume) as caught:
        program.live()
    text = str(caught.value)
    head = ": expected the graph 'sums' as it was saved, got one that differs in what a run depends on: "
    tail = "; go on with the graph as it was, or begin a new run"
    assert head in text
    assert text.endswith(tail)
    return text.split(head)[1].removesuffix(tail).split("; ")


def test_a_graph_that_differs_in_what_its_items_depend_on_is_refused_with_all_differences(suspended):
    """P5."""

    class Longer(Counted):
        def draw(self) -> float:
            return float(super().draw())

    def change(graph: Graph) -> Graph:
        return graph.with_("total", collect=Collect(3, steps=4)).with_("squares", order="any")

    class Floats(Sum):
        async def add(self, value: float, context: Context) -> None: ...

    async def cube(number: float, context: Context) -> float:
        return number**3

    assert refused(Program(suspended, Floats(), source=Longer(), stage=cube, change=change)) == [
        "sums.numbers.gives was int and is float",
        "sums.squares.takes was int and is float",
        "sums.squares.gives was int and is float",
        "sums.squares.order was input and is any",
        "sums.total.takes was int and is float",
        "sums.total.items was 2 and is 3",
    ]


def test_a_node_that_is_new_or_gone_is_refused(suspended):
    """P5."""

    def between(graph: Graph) -> Graph:
        whole = Graph("sums")
        numbers, squares = whole.source("numbers", Counted()), whole.stage("squares", square, workers=2, order="input")
        again = whole.stage("again", square)
        numbers >> squares >> again >> whole.sink("total", Sum(), collect=Collect(2, steps=4))
        return whole

    told = refused(Program(suspended, change=between))
    assert told[0].startswith("sums.again was not there and is {'kind': 'stage'")
    assert [line.split(" was ")[0] for line in told[1:]] == ["sums.squares->again", "sums.again->total", "sums.squares->total"]


def test_what_may_change_is_as_it_is_declared_now_and_told_of(suspended):
    """P5: the new settings are never overridden by the old."""
    program = Program(suspended, workers=5, steps=6, change=lambda graph: graph.with_("squares", deadline_s=9))
    found = differences(newest(suspended).manifest.graph, outline(program.graph().build(quiet=True)))
    assert [(d.path, d.before, d.now, d.verdict) for d in found] == [
        ("sums.squares.workers", 2, 5, "accept"),
        ("sums.squares.deadline_s", None, 9.0, "accept"),
        ("sums.total.steps", 4, 6, "accept"),
        ("sums.numbers->squares.capacity", [4, None], [10, None], "accept"),
    ]
    assert program.live().status == "completed"
    assert program.sink.taken == [n * n for n in range(12)]
    assert program.run.state.nodes["squares"].spec.workers == 5


def test_pools_have_the_sizes_that_are_declared_now():
    """P5, reverb#103: a limit that was saved never comes back over the one that is set now."""

    def graph_of(fixed: int, most: int, more: dict[str, int]) -> Graph:
        graph = Graph("pools", pools={"seats": fixed, "servers": (2, most), **more})
        graph.source("numbers", range(3)) >> graph.sink("sink", lambda value, context: None)
        return graph

    from flow._core.moment import capture, restore
    from flow._core.state import State

    before = State(graph_of(4, 9, {"old": 1}).build(quiet=True))
    before.pools.resize("servers", 8)
    after = State(graph_of(3, 5, {"new": 1}).build(quiet=True))
    restore(after, capture(before))
    assert after.pools.sizes == {"seats": 3, "servers": 5, "new": 1}
    assert after.pools.free == after.pools.sizes
    found = differences(outline(before.plan), outline(after.plan))
    assert {(d.path, d.verdict) for d in found} == {
        ("pools.pools.seats.size", "accept"), ("pools.pools.servers.size", "accept"), ("pools.pools.old", "accept"),
        ("pools.pools.new", "accept"),
    }  # fmt: skip


def test_what_declares_a_state_and_what_was_saved_must_be_the_same(suspended, tmp_path):
    """S92: a state that is saved and not restored is refused, and the other way round."""
    with Commits(suspended) as commits:
        assert commits.latest() is not None
    assert refused(Program(suspended, saving={"beside": {"rows": Rows()}})) == [
        "'beside rows' declares a state, and none was saved"
    ]

    class Plain:
        def add(self, value: int, context: Context) -> None: ...

        def finish(self, context: Context) -> int:
            return 0

    assert refused(Program(suspended, sink=Plain())) == [
        "a state of 'total' was saved, which declares none now",
        "'total' saved more than its state, and takes none of it over now",
    ]


def test_a_sink_whose_arrays_are_missing_does_not_begin_with_new_ones(tmp_path):
    """S100: nothing is refilled with defaults."""

    class Small(Sum):
        save = load = None  # type: ignore[assignment]

    small = Small()
    assert Program(tmp_path, sink=small).live(suspend_after_s=2.0).status == "suspended"
    assert refused(Program(tmp_path)) == ["'total' saves more than its state, and did not"]


def test_who_cannot_take_over_what_it_saved_is_named_with_all_others(suspended):
    class Other(Counted):
        def restore(self, state: int) -> None:
            raise ValueError(f"there is no row {state} among 3")

    program = Program(suspended, source=Other())

    def fail(method: str) -> None:
        if method == "load":
            raise ValueError("shapes differ")

    program.sink.fails = fail
    first, second = refused(program)
    assert first.startswith("'numbers' cannot take over what it saved (ValueError: there is no row ")
    assert second == "'total' cannot take over what it saved (ValueError: shapes differ)"


def test_a_sequence_that_is_shorter_than_what_was_drawn_of_it_is_refused(tmp_path):
    """S93."""
    Program(tmp_path, source=range(100)).live(suspend_after_s=2.0)
    (told,) = refused(Program(tmp_path, source=range(3)))
    assert told.startswith("'numbers' had given ")
    assert told.endswith(" items, and has 3")
    program = Program(tmp_path, source=range(100))
    assert program.live().status == "completed"
    assert program.sink.taken == TRAINED


def test_a_sink_that_had_come_to_its_end_is_not_asked_for_more(tmp_path):
    """Its sources have ended, so it would wait for ever, or end without a word."""

    class Slow:
        async def add(self, number: int, context: Context) -> None:
            await asyncio.sleep(30)

        def finish(self, context: Context) -> int:
            return 0

    def beside(graph: Graph) -> Graph:
        graph.source("tasks", range(9)) >> graph.sink("tail", Slow(), collect=Collect(1, steps=9))
        return graph

    assert Program(tmp_path, change=beside).live(suspend_after_s=50).status == "suspended"
    told = "'total' had come to its end after 4 steps, and is to take more"
    assert refused(Program(tmp_path, change=beside, steps=9)) == [told]
    assert Program(tmp_path, change=beside, steps=3).live().status == "completed"


def test_a_sink_that_ended_with_its_input_before_all_its_steps_goes_on_from_there(tmp_path):
    """It is complete with fewer steps than it was asked for, and asked for as many again."""
    first = Program(tmp_path, source=Counted(5), steps=4, every=3)
    assert first.live().status == "completed"
    again = Program(tmp_path, source=Counted(5), steps=4, every=3)
    assert again.live().status == "completed"
    assert again.sink.taken == first.sink.taken == [0, 1, 4, 9]


def test_a_commit_that_was_removed_meanwhile_is_told(tmp_path):
    Program(tmp_path).live()
    old = complete(tmp_path)[0]
    Program(tmp_path, steps=9).live()
    with pytest.raises(FileNotFoundError):
        Program(tmp_path, saving={"resume": old}).live()


def test_the_graph_after_it_does_not_go_on_from_a_commit_between_two(tmp_path):
    with Commits(tmp_path) as commits:
        commits.write(commits.begin(), {"phase": 1})
    with pytest.raises(CannotResume, match="expected the moment of a graph, got a commit between two; start the next graph"):
        Program(tmp_path).live()


@pytest.mark.parametrize("before", [Cost(5, float), Cost(5, float) | Items(8)])
def test_an_item_in_the_hand_of_a_source_is_not_lost_where_its_edge_has_no_cost_any_more(tmp_path, before):
    """P2, P5: the capacity of an edge may change."""

    first = Program(tmp_path, first=before)
    assert first.live(suspend_after_s=2.0).status == "suspended"
    assert first.run._staff.crews[0].in_hand is not None
    program = Program(tmp_path)
    assert program.live().status == "completed"
    assert program.sink.taken == TRAINED


def test_more_items_than_an_edge_holds_now_leave_before_others_come(tmp_path):
    """P5."""
    wide = Program(tmp_path, workers=8, second=Items(8))
    wide.live(suspend_after_s=0.9)
    assert max(len(node.input) for node in wide.run.state.nodes.values() if node.input) > 2
    narrow = Program(tmp_path, first=Items(1), second=Items(2))
    assert narrow.live().status == "completed"
    assert narrow.sink.taken == TRAINED


def test_a_source_on_a_thread_loses_nothing_that_it_had_drawn(tmp_path):
    """P2: suspended at many instants, between the draw on the thread and what the loop knows of it too."""
    for nth in range(60):
        program = Program(tmp_path, source=Slowly(), placement=Threads(), first=Items(1), steps=6)
        if program.live(suspend_after_s=0.05 + 0.07 * nth).status == "completed":
            break
    assert program.sink.taken == [n * n for n in range(12)]
    assert nth > 8


class Pinned:
    """Loads versions; an older one than the newest may be in force, which it holds over a resume."""

    def __init__(self) -> None:
        self.loaded: list[tuple[int, int]] = []
        self.held: tuple[int, int] | None = None
        self.open = asyncio.Event()

    async def load(self, value: int, version: int) -> None:
        if version > 1 and self.held is None:
            await self.open.wait()
        self.loaded.append((version, value))

    def state(self) -> tuple[int, int] | None:
        return self.loaded[-1] if self.loaded else None

    def restore(self, state: tuple[int, int] | None) -> None:
        self.held = state


def test_a_cell_begins_with_the_version_that_its_owner_holds_and_goes_on_to_the_newest(tmp_path):
    """P2, P4: an evaluation that is pinned to a version goes on with it."""
    owners: list[Pinned] = []

    async def live(suspend_after_s: float | None) -> list[int]:
        seen: list[int] = []
        sink, owner = Sum(), Pinned()
        owners.append(owner)

        async def look(version: int, context: Context) -> None:
            seen.append(version)

        graph = Graph("pinned")
        cell = graph.latest("weights", int, load=owner.load)
        numbers, versions = graph.source("numbers", Counted()), graph.versions("versions", cell)
        total = graph.sink("total", sink, collect=Collect(1, steps=3))
        numbers >> total
        versions >> graph.sink("looks", look)
        graph.feedback(total, cell, initial=lambda: sink.total)
        with Commits(tmp_path) as commits:
            run = Run(graph.build(quiet=True), stall_s=None, saving=Saving(commits, resume=commits.latest()))
            run.threads = PlayedExecutor
            if suspend_after_s is not None:
                asyncio.get_running_loop().call_later(suspend_after_s, run.suspend)
            await run.finish()
        return seen

    assert run_virtual(live(2.5)) == [0, 1]
    assert owners[0].loaded == [(0, 0), (1, 0)]
    run_virtual(live(None))
    assert owners[1].loaded[0] == (1, 0), "the version that was held, and then the newest"
    assert [version for version, _ in owners[1].loaded] == [1, 2, 3]
