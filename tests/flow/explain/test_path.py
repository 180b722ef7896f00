"""Walks over traces that are written by hand, so that each nanosecond of the way is known."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from flow.explain import GraphVerdict, Verdict, explain
from flow.trace import PerfettoWriter, read_trace

S = 10**9


class Drawn:
    """A trace of one graph; times in seconds."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "run.pftrace"
        self._writer = PerfettoWriter(self._path, clock=lambda: 0)
        self._writer.__enter__()
        self._nodes: dict[str, int] = {}

    def lane(self, name: str, *slices: tuple[float, float, str, Mapping[str, Any]], graph: str = "g") -> None:
        """A worker: from when to when, what, and details; ``flows`` among them are arrows."""
        node, _, number = name.partition("/")
        parent = self._writer.track(f"graph {graph}")
        rank = self._nodes.setdefault(node, len(self._nodes))
        self.track(self._writer.track(name, self._writer.track(node, parent, rank=rank), rank=int(number)), *slices)

    def role(self, name: str, *slices: tuple[float, float, str, Mapping[str, Any]]) -> None:
        """A track of its own."""
        self.track(self._writer.track(name), *slices)

    def track(self, track: int, *slices: tuple[float, float, str, Mapping[str, Any]]) -> None:
        for start, end, name, args in slices:
            rest = {key: value for key, value in args.items() if key != "flows"}
            self._writer.begin(track, name, round(start * S), rest, args.get("flows", ()))
            self._writer.end(track, round(end * S))

    def moment(self, name: str, at: float, args: Mapping[str, Any], graph: str = "g") -> None:
        self._writer.instant(self._writer.track(f"{graph} events"), name, round(at * S), args)

    def judged(self) -> Verdict:
        self._writer.close()
        return explain(read_trace(self._path))


@pytest.fixture
def drawn(tmp_path: Path) -> Drawn:
    return Drawn(tmp_path)


def wait(start: float, end: float, kind: str, what: str = "") -> tuple[float, float, str, Mapping[str, Any]]:
    return start, end, f"wait for {kind}", {"for": what}


def work(start: float, end: float, node: str, *flows: int, **args: Any) -> tuple[float, float, str, Mapping[str, Any]]:
    return start, end, node, {"flows": flows, **args}


def path(graph: GraphVerdict) -> dict[tuple[str, str], float]:
    return {(part.kind, part.name): round(part.seconds, 6) for part in graph.path}


def test_the_way_goes_to_who_made_it_and_through_what_that_one_did_before(drawn: Drawn) -> None:
    """``b`` waits for ``a``, which makes 1 and then 2: both are on the way, and the wait is not."""
    drawn.lane("a/0", work(0, 4, "a", 1, item="1"), work(4, 9, "a", 2, item="2"))
    drawn.lane("b/0", wait(0, 4, "input"), work(4, 5, "b", 1), wait(5, 9, "input"), work(9, 10, "b", 2))
    graph = drawn.judged().graphs[0]
    assert path(graph) == {("work", "a"): 9.0, ("work", "b"): 1.0}
    assert graph.idle == pytest.approx(0.8)
    assert [(part.kind, part.name) for part in graph.idle_by] == [("work", "a")]


def test_a_wait_for_a_pool_is_put_down_to_the_pool(drawn: Drawn) -> None:
    drawn.lane("a/0", work(0, 1, "a", 1), work(1, 2, "a", 2))
    drawn.lane("b/0", wait(0, 1, "input"), work(1, 5, "b", 1), wait(5, 10, "input"))
    drawn.lane("b/1", wait(0, 2, "input"), wait(2, 5, "pool", "gpu"), work(5, 9, "b", 2))
    drawn.lane("c/0", wait(0, 9, "input"), work(9, 10, "c", 2))
    assert path(drawn.judged().graphs[0]) == {("work", "a"): 2.0, ("pool", "gpu"): 3.0, ("work", "b"): 4.0, ("work", "c"): 1.0}


def test_where_the_last_node_at_work_has_several_workers_their_waits_are_a_share_of_all_their_time(drawn: Drawn) -> None:
    """As in a run that was killed before its first step: the sink did nothing, and who stands for it has many workers."""
    drawn.lane("a/0", work(0, 8, "a", 1))
    for number in range(4):
        drawn.lane(f"b/{number}", wait(0, 8, "input"), work(8, 10, "b", 1))
    found = drawn.judged().graphs[0]
    assert found.sink == "b"
    assert sum(part.share for part in found.idle_by) == pytest.approx(0.8)
    assert sum(part.seconds for part in found.idle_by) == pytest.approx(8.0)


def test_a_wait_for_room_leads_to_who_made_it(drawn: Drawn) -> None:
    """``a`` has made 2 and cannot hand it on before ``b`` takes 1, which it cannot before it is done with 0."""
    drawn.lane(
        "a/0", work(0, 1, "a", 0), work(1, 2, "a", 1), work(2, 3, "a", 2), wait(3, 6, "room", "a->b"), work(6, 7, "a", 3)
    )
    drawn.lane(
        "b/0", wait(0, 1, "input"), work(1, 6, "b", 0), work(6, 6.5, "b", 1), work(6.5, 6.8, "b", 2), wait(6.8, 7, "input")
    )
    drawn.lane("c/0", wait(0, 7, "input"), work(7, 8, "c", 3))
    assert path(drawn.judged().graphs[0]) == {("work", "c"): 1.0, ("work", "a"): 2.0, ("work", "b"): 5.0}


def test_a_ticket_leads_to_the_load_that_gave_it_back_and_to_the_step_before_that(drawn: Drawn) -> None:
    drawn.lane("open/0", work(0, 0, "open", 1, birth=0), wait(0, 6, "ticket", "x->open"), work(6, 6, "open", 2, birth=1))
    first = (wait(0, 1, "input"), work(1, 2, "sink", 1, call="add", birth=0), work(2, 4, "sink", 1, call="finish"))
    second = (wait(4, 7, "input"), work(7, 8, "sink", 2, call="add", birth=1), work(8, 9, "sink", 2, call="finish"))
    drawn.lane("sink/0", *first, *second)
    drawn.lane("play/0", work(0, 1, "play", 1), wait(1, 6, "input"), work(6, 7, "play", 2))
    drawn.role("weights (load)", (4, 6, "load", {"version": 1}))
    graph = drawn.judged().graphs[0]
    assert graph.steps == 2
    assert path(graph) == {("work", "sink"): 5.0, ("work", "play"): 2.0, ("load", "weights"): 2.0}
    assert [(leg.name, round(leg.seconds, 6)) for leg in graph.way] == [("weights", 2.0), ("play", 1.0), ("sink", 2.0)]


def test_a_load_that_is_held_back_and_what_is_compiled_are_told_apart(drawn: Drawn) -> None:
    drawn.lane("open/0", work(0, 0, "open", 1, birth=0), wait(0, 6, "ticket", "x->open"), work(6, 6, "open", 2, birth=1))
    drawn.lane("sink/0", work(0, 3, "sink", 1, call="finish"), wait(3, 6, "input"), work(6, 9, "sink", 2, call="finish"))
    drawn.role("weights (load)", (3, 6, "load", {"version": 1}))
    drawn.role("weights (sync wait)", (4, 6, "sync wait", {}))
    drawn.role("sink", (7, 8.5, "compile", {}))
    found = path(drawn.judged().graphs[0])
    assert found[("load", "weights")] == 1.0
    assert found[("sync wait", "weights")] == 2.0
    assert found[("compile", "sink")] == 1.5


def test_arrows_of_versions_tie_no_two_items_together(drawn: Drawn) -> None:
    """Both took version 7, which is 70 here: the second has nothing from the first."""
    drawn.role("weights (load)", (0, 1, "load", {"version": 7, "flows": (70,)}))
    drawn.lane("a/0", work(1, 4, "a", 1, 70), wait(4, 9, "input"))
    drawn.lane("a/1", wait(0, 5, "input"), work(5, 9, "a", 2, 70))
    drawn.lane("b/0", wait(0, 9, "input"), work(9, 10, "b", 2))
    assert path(drawn.judged().graphs[0]) == {("work", "b"): 1.0, ("work", "a"): 4.0, ("start", ""): 5.0}


def test_executions_of_graphs_of_one_name_are_told_apart(drawn: Drawn) -> None:
    drawn.lane("a/0", work(0, 4, "a", 1), work(10, 12, "a", 2))
    graphs = drawn.judged().graphs
    assert [(graph.start, graph.seconds) for graph in graphs] == [(0.0, 4.0), (10.0, 2.0)]


def test_drops_retries_deadlines_and_stalls_are_counted(drawn: Drawn) -> None:
    drawn.lane("a/0", work(0, 4, "a", 1))
    drawn.moment("dropped", 1, {"node": "a", "reason": "stale", "count": 3})
    drawn.moment("dropped", 2, {"node": "a", "reason": "stale"})
    drawn.moment("retried", 2, {"node": "a", "kind": "OSError"})
    drawn.moment("overdue", 3, {"node": "a"})
    drawn.moment("stalled", 3, {"why": "nothing moves", "report": "nothing moves\nat all"})
    drawn.moment("dropped", 3, {"reason": "of another graph"}, graph="other")
    graph = drawn.judged().graphs[0]
    assert (graph.dropped, graph.retried, graph.overdue) == ({"stale": 4}, {"OSError": 1}, {"a": 1})
    assert graph.stalls == ("nothing moves",)


def test_groups_that_wait_long_for_one_member_name_it(drawn: Drawn) -> None:
    """Members of the first group end after 1, 2 and 10 seconds, those of the second together."""
    for lane, (first, second) in enumerate([(1, 12), (2, 12), (10, 12.1)]):
        played = work(0, first, "play", 10 + lane, item=f"0.{lane}", member=lane)
        drawn.lane(f"play/{lane}", played, work(10, second, "play", 20 + lane, item=f"1.{lane}", member=lane))
    drawn.lane("groups/0", work(10, 10, "groups", 10, 11, 12), work(12.1, 12.1, "groups", 20, 21, 22))
    late = drawn.judged().graphs[0].stragglers
    assert late is not None
    assert (late.groups, late.waiting, late.seconds) == (2, 1, pytest.approx(8.0))
    assert late.worst == (("0.2", pytest.approx(8.0)),)


def test_a_trace_without_any_work_has_no_graph(drawn: Drawn) -> None:
    drawn.lane("a/0", wait(0, 4, "input"))
    assert drawn.judged().graphs == ()
