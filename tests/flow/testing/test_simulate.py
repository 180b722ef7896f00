"""Whole runs in virtual time: repeatable, disturbed as asked, checked for what is left over, and told how to repeat."""

import asyncio
import time

import pytest

from flow import Collect, Context, Drop, Freshness, Graph, Processes, Retry, Shrink, StageFailed, Stalled, Threads
from flow.testing import Collected, Pause, Script, simulate
from flow.testing._simulate import leftovers


async def double(number: int, context: Context) -> int:
    await asyncio.sleep(1 + number % 3)
    return 2 * number


def line(sink, work=double, count: int = 20, **settings) -> Graph:
    graph = Graph("line", pools={"seats": 2})
    numbers = graph.source("numbers", range(count))
    doubled = graph.stage("doubled", work, **{"workers": 4, "needs": {"seats": 1}, **settings})
    numbers >> doubled >> graph.sink("sink", sink)
    return graph


def test_an_hour_takes_no_time_and_comes_out_the_same_each_time():
    def once(seed: int):
        sink = Collected()
        done = simulate(line(sink, count=200), seed, kill=0.1, leave=0.2, late=0.1, slow=0.1)
        return done.summary, done.kills, done.left, done.seconds, sink.arrivals

    began = time.perf_counter()
    first = once(7)
    assert time.perf_counter() - began < 5
    assert first[3] > 100
    assert once(7) == first
    assert once(8) != first
    assert sorted(arrival.value for arrival in first[4]) == list(range(0, 400, 2))


def test_a_plan_runs_as_well_as_a_graph():
    sink = Collected()
    assert simulate(line(sink).build()).summary.status == "completed"
    assert len(sink.arrivals) == 20


def test_workers_leave_for_good_and_the_last_one_stays():
    """C3: with all kills for good, three of four workers are soon gone, and every item arrives."""
    sink = Collected()
    done = simulate(line(sink, count=100), 3, kill=0.3, leave=1.0)
    assert done.left == 3
    assert done.kills > 10
    assert sorted(sink.values) == list(range(0, 200, 2))
    shares = done.summary.nodes["doubled"].shares
    assert sum(shares.values()) == pytest.approx(1)


def test_a_stage_that_keeps_order_gets_its_workers_back():
    """S2: the others may all wait for their turn behind the item that came back."""
    for seed in range(30):
        sink = Collected()
        simulate(line(sink, order="input"), seed, kill=0.2, leave=1.0)
        assert sink.values == list(range(0, 40, 2))


def test_an_error_of_the_run_says_how_to_repeat_it():
    async def fails(number: int, context: Context) -> int:
        raise ValueError("broken")

    with pytest.raises(StageFailed, match="broken") as caught:
        simulate(line(Collected(), fails), 11, kill=0.05, late=0.1)
    assert caught.value.__notes__[-1] == "graph 'line'; to repeat it: simulate(graph, seed=11, kill=0.05, late=0.1)"


def test_a_graph_that_can_never_move_says_where_its_items_are():
    async def waits(number: int, context: Context) -> int:
        return await asyncio.get_running_loop().create_future()

    with pytest.raises(RuntimeError, match="every task waits") as caught:
        simulate(line(Collected(), waits, count=2), 1)
    assert "items are left in {'numbers->doubled': 2}" in caught.value.__notes__[0]
    with pytest.raises(Stalled, match="in user code"):
        simulate(line(Collected(), waits, count=2), 1, stall_s=60)


def test_a_run_that_never_ends_is_given_up():
    class Endless:
        def draw(self) -> int:
            return 1

    graph = Graph("endless")
    graph.source("ones", Endless()) >> graph.stage("doubled", double) >> graph.sink("sink", Collected())
    with pytest.raises(TimeoutError, match="expected an end within 50 virtual seconds"):
        simulate(graph, deadline_s=50)


def test_a_task_that_a_stage_leaves_behind_is_an_error():
    async def forgets(number: int, context: Context) -> int:
        asyncio.get_running_loop().create_task(asyncio.sleep(1000), name="forgotten")
        return number

    with pytest.raises(
        AssertionError, match=r"expected nothing left over, got the task 'forgotten'.*simulate\(graph, seed=2\)"
    ):
        simulate(line(Collected(), forgets, count=1), 2)

    async def fails(number: int, context: Context) -> int:
        await forgets(number, context)
        raise ValueError("broken")

    with pytest.raises(StageFailed) as caught:
        simulate(line(Collected(), fails, count=1))
    assert "and the task 'forgotten' was left over" in caught.value.__notes__


def triple(number: int, context: Context) -> int:
    return 3 * number


def test_what_runs_in_processes_is_played_in_virtual_time():
    """The same each time, and no process is started: its number would be another one."""
    seen: list[list] = []
    for seed in (1, 1, 2):
        sink = Collected()
        graph = line(sink, triple, placement=Processes())
        simulate(graph.build() if seed == 2 else graph, seed, kill=0.1)
        seen.append(sink.arrivals)
    assert seen[0] == seen[1] != seen[2]
    assert all(sorted(arrival.value for arrival in arrivals) == list(range(0, 60, 3)) for arrivals in seen)


def test_units_turns_and_tickets_that_are_out_are_left_over():
    done = simulate(line(Collected(), order="input"))
    assert leftovers(done.run, done.summary) == []
    done.run.state.pools.free["seats"] -= 1
    done.run.state.nodes["doubled"].turns.add(3)
    assert leftovers(done.run, done.summary, ["x"]) == [
        "the task 'x'",
        "1 units of pool 'seats' out",
        "turns of doubled out: [3]",
    ]


def test_tickets_come_back_with_feedback_groups_and_failures():
    """F3."""
    graph, sink = Graph("training"), Collected()

    async def play(number: int, context: Context) -> int:
        await asyncio.sleep(number % 5)
        if number % 7 == 3 and context.retry == 0:
            raise ValueError("once")
        return number

    weights = graph.latest("weights", int)
    tasks = graph.source("tasks", range(100))
    members = graph.repeat("members", tasks, n=3)
    plays = graph.stage("plays", play, workers=6, reads=weights, on_error=Retry(0, then=Drop()))
    groups = graph.group("groups", plays, missing=Shrink(1))
    steps = graph.sink("steps", sink, collect=Collect(4, steps=5))
    tasks >> members >> plays >> groups >> steps
    graph.feedback(steps, weights, initial=0, freshness=Freshness(1))
    for seed in range(10):
        sink.arrivals.clear()
        done = simulate(graph, seed, kill=0.05, late=0.05)
        assert len(sink.arrivals) == 20
        assert {arrival.lag for arrival in sink.arrivals} <= {0, 1}
        assert done.run.state.nodes["members"].admission.held == 0


def test_nodes_on_threads_are_played_in_virtual_time():
    """S6: the same results, killed or not, and no thread is started."""
    import threading

    before, ran_on = threading.active_count(), set()

    def on_a_thread(number: int, context: Context) -> int:
        ran_on.add(threading.current_thread())
        return 2 * number

    for seed in range(20):
        sink = Collected()
        simulate(line(sink, on_a_thread, placement=Threads()), seed, kill=0.2)
        assert sorted(sink.values) == list(range(0, 40, 2))
    assert ran_on == {threading.main_thread()}
    assert threading.active_count() == before


def test_a_script_on_threads_holds_nobody_up():
    def run(placement):
        graph, sink = Graph("script"), Collected()
        numbers = graph.source("numbers", Script([0, Pause(100), 1]), **placement)
        numbers >> graph.stage("doubled", double) >> graph.sink("sink", sink)
        simulate(graph)
        return [arrival.at_s for arrival in sink.arrivals]

    held, free = run({}), run({"placement": Threads()})
    assert held[0] > 100  # drawn on the loop, the second value stops the first on its way
    assert free[0] < 2
    assert free[1] > 100
