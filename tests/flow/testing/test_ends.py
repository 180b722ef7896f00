"""The scripted source and the sink that keeps what arrives."""

import asyncio

import pytest

from flow import Collect, Context, Graph, StageFailed
from flow.testing import Collected, Pause, Script, context, run_virtual, simulate


def drawn(script: Script) -> list:
    values = []
    while True:
        try:
            values.append(script.draw())
        except StopIteration:
            return values


def test_a_script_gives_its_values_in_order_and_ends():
    assert drawn(Script(["a", None, "b"])) == ["a", None, "b"]
    assert drawn(Script([])) == []


def test_a_script_raises_where_an_error_stands_and_goes_on_after_it():
    script = Script([1, ValueError("gone"), 2])
    assert script.draw() == 1
    with pytest.raises(ValueError, match="gone"):
        script.draw()
    assert drawn(script) == [2]


def test_an_error_in_a_script_ends_the_run_with_its_place():
    graph = Graph("script")
    graph.source("numbers", Script([1, 2, OSError("lost")])) >> graph.sink("sink", Collected())
    with pytest.raises(StageFailed, match=r"stage 'numbers' failed at item 2 .*OSError: lost"):
        simulate(graph)


def test_a_pause_lets_virtual_time_pass_and_real_time_where_there_is_no_loop():
    async def main() -> tuple[int, float]:
        return Script([Pause(3600), 1]).draw(), asyncio.get_running_loop().time()

    assert run_virtual(main()) == (1, 3600)
    assert Script([Pause(0.001), 1]).draw() == 1

    async def real() -> int:
        return Script([Pause(0.001), 1]).draw()

    assert asyncio.run(real()) == 1


def test_a_restored_script_goes_on_where_it_was():
    script = Script([1, Pause(0), 2, 3])
    script.draw()
    again = Script([1, Pause(0), 2, 3])
    again.restore(script.state())
    assert drawn(again) == drawn(script) == [2, 3]
    with pytest.raises(ValueError, match="expected a place from 0 to 4, got 5"):
        again.restore(5)


def test_a_plain_sink_keeps_values_with_who_they_are_and_when():
    async def late(number: int, context: Context) -> int:
        await asyncio.sleep(number)
        return number * 10

    graph, sink = Graph("line"), Collected()
    graph.source("numbers", [3, 1]) >> graph.stage("late", late, workers=2) >> graph.sink("sink", sink)
    simulate(graph)
    assert sink.values == [10, 30]
    assert [(a.path, a.birth, a.retry, a.lag, a.step, a.at_s) for a in sink.arrivals] == [
        ((1,), 1, 0, None, None, 1.0),
        ((0,), 0, 0, None, None, 3.0),
    ]


def test_a_collector_keeps_values_by_step():
    graph, sink = Graph("steps"), Collected()
    graph.source("numbers", range(5)) >> graph.sink("sink", sink, collect=Collect(2))
    simulate(graph)
    assert [(arrival.value, arrival.step) for arrival in sink.arrivals] == [(0, 0), (1, 0), (2, 1), (3, 1)]
    assert sink.steps == 2


def test_a_step_gives_what_it_is_told_to_and_one_that_is_not_complete_keeps_nothing():
    async def main() -> tuple[str, list]:
        sink = Collected(result=lambda steps: f"weights {steps}")
        sink.add("a", context())
        before = list(sink.arrivals)
        return sink.finish(context()), before

    assert run_virtual(main()) == ("weights 1", [])
