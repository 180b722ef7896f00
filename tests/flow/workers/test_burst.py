"""Bursts: plain hand-overs in one stretch, and each kind of special item in the middle of one."""

import asyncio
from collections import Counter

import pytest

from flow import Context, Drop, Failed, Filtered, Graph, Items, Many, Run, StageFailed, Summary
from flow.testing import VirtualLoop, run_virtual
from flow.trace import PerfettoWriter, read_trace

COUNT = 40
SPECIAL = {7: "filtered", 13: "many", 14: "none", 21: "failed", 22: "raised", 23: "awaited", 30: "cancelled", 31: "raised"}


def special(value: int, context: Context) -> object:
    """A synchronous stage that does everything a stage may."""
    kind = SPECIAL.get(value)
    if kind == "filtered":
        return Filtered("dull")
    if kind in ("many", "none"):
        return Many([value, -value] if kind == "many" else [])
    if kind == "failed":
        return Failed(value, "marked")
    if kind == "raised":
        raise ValueError("drawn")
    if kind == "cancelled":
        raise asyncio.CancelledError
    return later(value) if kind == "awaited" else value


async def later(value: int) -> int:
    await asyncio.sleep(1.0)
    return value


def line(work=special, capacity: int = 8, count: int = COUNT) -> tuple[Graph, list]:
    graph, got = Graph("line"), []

    def keep(value: int, context: Context) -> None:
        got.append(value)

    a, b, c = graph.source("a", range(count)), graph.stage("b", work, on_error=Drop(10, 40)), graph.sink("c", keep)
    _ = a >> b >> c
    graph.edge(a, b, capacity=Items(capacity))
    graph.edge(b, c, capacity=Items(capacity))
    return graph, got


def finish(graph: Graph, **options: object) -> Summary:
    return run_virtual(Run(graph.build(), **options).finish())


@pytest.mark.parametrize("capacity", [1, 2, 8, 64])
def test_what_is_special_in_the_middle_of_a_stretch_comes_to_its_end_and_the_others_go_on_in_order(capacity):
    """C1, S1: counts by kind, the order of the rest, and nothing twice."""
    graph, got = line(capacity=capacity)
    summary = finish(graph)
    plain = [value for value in range(COUNT) if SPECIAL.get(value, "") in ("", "failed", "awaited", "many")]
    assert got == [part for value in plain for part in ([value, -value] if value == 13 else [value])]
    node = summary.nodes["b"]
    assert dict(node.dropped) == {"dull": 1, "ValueError": 2, "CancelledInside": 1}
    assert (summary.status, summary.balanced) == ("completed", True)
    assert summary.nodes["b"].emitted == summary.nodes["c"].taken == len(got)


def test_an_error_in_the_middle_of_a_stretch_ends_the_run_with_what_was_done_before_it_counted():
    graph, _got = line(work=lambda value, context: 1 // (value - 5) and value)
    graph = graph.with_("b", on_error=graph.spec().nodes["a"].on_error)
    run = Run(graph.build())
    with pytest.raises(StageFailed) as caught:
        run_virtual(run.finish())
    assert (caught.value.node, caught.value.path) == ("b", (5,))
    state = run.state
    assert state.faults() == []
    assert state.nodes["b"].meter.finished == 5
    assert next(item.path for item in state.nodes["b"].inputs[0].buffer) == (5,)


def test_a_stage_before_a_slow_one_takes_no_more_than_there_is_room_for():
    """C5: a stretch is as long as the room behind it."""
    graph, got = Graph("line"), []

    async def keep(value: int, context: Context) -> None:
        await asyncio.sleep(1.0)
        got.append(value)

    a, b, c = graph.source("a", range(COUNT)), graph.stage("b", lambda value, context: value), graph.sink("c", keep)
    _ = a >> b >> c
    graph.edge(a, b, capacity=Items(8))
    graph.edge(b, c, capacity=Items(3))
    run = Run(graph.build())
    run_virtual(run.finish())
    assert got == list(range(COUNT))
    assert [edge.high_water for node in run.state.nodes.values() for edge in node.inputs] == [8, 3]


@pytest.mark.parametrize("seed", range(6))
def test_kills_between_stretches_lose_nothing(seed):
    """C3: workers that move items in bursts are killed as soon as they are woken."""
    graph, got = line(capacity=3)
    loop = VirtualLoop(seed, kill=0.5)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        summary = runner.run(Run(graph.build()).finish())
    assert loop.kills > 0
    assert summary.balanced
    expected = [part for v in range(COUNT) if SPECIAL.get(v, "") in ("", "failed", "awaited", "many") for part in {v: 1}]
    assert Counter(map(abs, got)) == Counter(expected) + Counter({13: 1})


def test_who_watches_hears_of_each_value_of_a_stretch_once():
    graph, got = line(work=lambda value, context: value + 100)

    class Watch:
        def __init__(self) -> None:
            self.heard: list[int] = []

        def committed(self, node, values):
            if node == "b":
                self.heard += values

        def reported(self, node, row): ...

    watch = Watch()
    finish(graph, watchers=(watch,))
    assert watch.heard == got == list(range(100, 100 + COUNT))


def test_the_trace_of_a_stretch_shows_every_item_once(tmp_path):
    """Slices of quick items say how many they hold; a special one has a slice of its own."""
    graph, _ = line()
    with PerfettoWriter(tmp_path / "t") as writer:
        finish(graph, recorder=writer)
    trace = read_trace(tmp_path / "t")
    lane = next(number for number, track in trace.tracks.items() if track.name == "b/0")
    slices = [s for s in trace.slices if s.track == lane and s.name == "b"]
    assert sum(int(s.args.get("items", 1)) for s in slices) >= COUNT
    assert all(s.end_ns >= s.start_ns for s in slices)
    starts = [s.start_ns for s in slices]
    assert starts == sorted(starts)
