"""What happens in a graph and is no worker's time is in the trace: groups, versions, drops, failures, arrows."""

import asyncio
import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from flow import Collect, Context, Drop, Filtered, Freshness, Gathered, Graph, Inline, Retry, Shrink
from flow.testing import simulate
from flow.trace import Instant, PerfettoWriter, Slice, Trace, read_trace


class Steps:
    """A trainer: one more for each step."""

    def __init__(self) -> None:
        self.steps = 0

    async def add(self, value: list[int], context: Context) -> None:
        await asyncio.sleep(0.1)

    async def finish(self, context: Context) -> int:
        await asyncio.sleep(0.1)
        self.steps += 1
        return self.steps


async def play(value: int, context: Context) -> int:
    await asyncio.sleep(1.0 + context.member)
    return value


async def load(value: int, version: int) -> None:
    await asyncio.sleep(0.2)


def summed(group: Gathered[int], context: Context) -> list[int]:
    return [*group.members]


def loop(play: Any = play, steps: int = 3, missing: Any = "drop", max_lag: int = 1) -> Graph:
    """Tasks, groups of three, two groups a step, and what a step gives is what the next are played with."""
    graph = Graph("loop", pools={"seat": 4})
    weights = graph.latest("weights", int, load=load)
    tasks = graph.source("tasks", range(100))
    members = graph.repeat("members", tasks, n=3)
    episodes = graph.stage("episodes", play, workers=4, reads=weights, needs={"seat": 1}, on_error=Drop())
    groups = graph.group("groups", episodes, missing=missing, budget=None)
    batches = graph.stage("batches", summed)
    trainer = graph.sink("trainer", Steps(), collect=Collect(2, steps=steps))
    _ = tasks >> members >> episodes >> groups >> batches >> trainer
    graph.feedback(trainer, weights, initial=0, freshness=Freshness(max_lag=max_lag))
    return graph


def traced(folder: Path, graph: Graph, **settings: Any) -> Trace:
    with PerfettoWriter(folder / "run.pftrace") as recorder:
        simulate(graph, recorder=recorder, **settings)
    return read_trace(folder)


def on(trace: Trace, name: str) -> list[Slice]:
    """The slices of work of a node."""
    return [each for each in trace.slices if each.name == name and trace.tracks[each.track].name.startswith(f"{name}/")]


def moments(trace: Trace, name: str) -> list[Instant]:
    return [each for each in trace.instants if each.name == name]


def test_arrows_lead_from_a_task_to_the_version_it_made_and_to_what_was_played_with_that_and_back(tmp_path):
    """Walked by the numbers of arrows alone: task, members, episode, group, batch, step, version, episodes of that version."""
    trace = traced(tmp_path, loop())
    events = [*trace.slices, *trace.instants]

    def along(event: Slice | Instant, name: str, **args: Any) -> list[Slice | Instant]:
        """Events of a name which an arrow through this one goes through."""
        shared = [each for each in events if each.name == name and set(each.flows) & set(event.flows)]
        return [each for each in shared if args.items() <= each.args.items()]

    opened = next(each for each in on(trace, "members") if each.args["birth"] == 1)
    episode = next(each for each in along(opened, "episodes") if each.args["member"] == 2)
    (group,) = along(episode, "group")
    (gathered,) = along(episode, "groups")
    assert group.args["birth"] == gathered.args["birth"] == 1
    (batch,) = along(gathered, "batches")
    (added,) = along(batch, "trainer", call="add")
    (step,) = along(added, "trainer", call="finish")
    (published,) = along(step, "published")
    assert published.args == {"cell": "weights", "version": step.args["step"], "step": step.args["step"]}
    version = published.args["version"]
    (loaded,), (in_force,) = along(published, "load"), along(published, "in force")
    assert loaded.args == {"version": version}
    dispatched = along(in_force, "episodes")
    assert dispatched
    assert {each.args["version"] for each in dispatched} == {version}
    assert {id(each) for each in dispatched} == {id(each) for each in on(trace, "episodes") if each.args["version"] == version}

    # And back: from an episode of that version to what made it, down to the tasks.
    (published_again,) = along(dispatched[0], "published")
    (step_again,) = along(published_again, "trainer", call="finish")
    births = sorted(each.args["birth"] for each in along(step_again, "trainer", call="add"))
    assert len(births) == 2
    assert 1 in births
    groups = {each.args["birth"]: each for each in along(step_again, "groups")}
    assert sorted(groups) == births
    episodes_of = along(groups[1], "episodes")
    assert {each.args["member"] for each in episodes_of} == {0, 1, 2}
    (opened_again,) = along(episodes_of[0], "members")
    assert opened_again is opened
    assert along(opened_again, "tasks") or on(trace, "tasks")[0].args["items"] > 1, "quick tasks share a slice"


def test_no_arrow_of_one_step_or_version_is_one_of_another(tmp_path):
    trace = traced(tmp_path, loop(steps=4))
    finishes = [each for each in on(trace, "trainer") if each.args["call"] == "finish"]
    assert [each.args["step"] for each in finishes] == [1, 2, 3, 4]
    for one, two in itertools.pairwise(finishes):
        assert not set(one.flows) & set(two.flows)
    ids = [set(each.flows) for each in moments(trace, "published")]
    assert all(len(each) == 2 for each in ids)
    assert len(set.union(*ids)) == 8


def test_an_open_group_is_a_slice_that_says_at_its_close_who_was_last(tmp_path):
    """In virtual time a member takes as many seconds as its number, and one more."""
    trace = traced(tmp_path, loop())
    groups = [each for each in trace.slices if each.name == "group"]
    closed = [each for each in groups if "members" in each.args]
    assert len(closed) >= 6
    assert [each.args["birth"] for each in sorted(groups, key=lambda each: each.start_ns)] == list(range(len(groups)))
    for each in closed:
        assert (each.args["size"], each.args["members"], each.args["missing"], each.args["last"]) == (3, 3, 0, 2)
        assert each.args["reason"] == "full"
        played = [one for one in on(trace, "episodes") if set(one.flows) & set(each.flows)]
        assert each.end_ns == pytest.approx(max(one.end_ns for one in played), abs=1e6)
    for track in {each.track for each in groups}:
        mine = [each for each in groups if each.track == track]
        assert trace.tracks[track].name.startswith("groups groups ")
        assert all(one.end_ns <= two.start_ns for one, two in itertools.pairwise(mine))


def test_a_group_that_lacks_a_member_says_so_and_a_dropped_one_why(tmp_path):
    async def fail(value: int, context: Context) -> int:
        await asyncio.sleep(1.0 + context.member)
        if value in (0, 1) and context.member == 0:
            raise ValueError("no")
        return value

    trace = traced(tmp_path, loop(fail, missing=Shrink(2)))
    shrunk = [each.args for each in trace.slices if each.name == "group" and each.args.get("missing")]
    assert [(args["birth"], args["members"], args["missing"], args["reason"]) for args in shrunk] == [
        (0, 2, 1, "shrunk"), (1, 2, 1, "shrunk"),
    ]  # fmt: skip
    trace = traced(tmp_path, loop(fail, missing=Retry(1, then="drop")))
    dropped = [each.args for each in trace.slices if each.name == "group" and "failed" in str(each.args.get("reason"))]
    assert [(args["birth"], args["reason"]) for args in dropped] == [
        (0, "member failed: ValueError"), (1, "member failed: ValueError"),
    ]  # fmt: skip


def test_what_fails_is_retried_or_dropped_is_a_moment_with_its_item_and_reason(tmp_path):
    async def fail(value: int, context: Context) -> int:
        await asyncio.sleep(1.0)
        if value == 1 and context.retry < 2:
            raise ValueError(f"no {context.retry}")
        if value == 2:
            raise KeyError("never")
        return value

    graph = Graph("line")

    def forget(value: int, context: Context) -> None: ...

    work = graph.stage("work", fail, workers=2, on_error=Retry(2, then=Drop(), on=(ValueError,)))
    _ = graph.source("numbers", range(4)) >> work >> graph.sink("end", forget)
    trace = traced(tmp_path, graph)
    told = {name: [(each.args["item"], each.args["kind"]) for each in moments(trace, name)] for name in ("retried", "failed")}
    assert told == {"retried": [("1", "ValueError")] * 2, "failed": [("2", "KeyError")]}
    assert [each.args["message"] for each in moments(trace, "retried")] == ["no 0", "no 1"]
    (dropped,) = moments(trace, "dropped")
    assert dropped.args == {"node": "work", "item": "2", "reason": "KeyError"}
    assert all(dropped.flows[0] in each.flows for each in on(trace, "work") if each.args["item"] == "2")
    assert trace.tracks[dropped.track].name == "line events"


def test_drops_by_the_thousand_are_counted_in_few_moments(tmp_path):
    async def odd(value: int, context: Context) -> int | Filtered:
        return value if value % 2 else Filtered("even")

    graph = Graph("line")

    def forget(value: int, context: Context) -> None: ...

    _ = graph.source("numbers", range(2000)) >> graph.stage("work", odd, budget=None) >> graph.sink("end", forget)
    trace = traced(tmp_path, graph)
    dropped = moments(trace, "dropped")
    assert sum(int(each.args.get("count", 1)) for each in dropped) == 1000
    assert len(dropped) < 20


@pytest.mark.parametrize("max_lag", [0, 1])
def test_counters_say_what_is_held_how_old_it_is_and_how_fast_it_goes(max_lag, tmp_path):
    trace = traced(tmp_path, loop(steps=6, max_lag=max_lag))
    values = {track.name: trace.counters[number] for number, track in trace.tracks.items() if track.kind == "counter"}
    held, free = values["tickets held"], values["tickets free"]
    assert set(map(sum, zip(held.values, free.values, strict=False))) <= set(range(2 * (max_lag + 1) + 3))
    assert max(held.values) == 2 * (max_lag + 1)
    assert max(values["lag"].values) == 1, "between the end of a step and the load of what it gave"
    assert max(values["pool seat held"].values) == 4
    assert max(values["groups open groups"].values) <= 2 * (max_lag + 1)
    assert {"members->episodes depth", "trainer rate", "loop lag", "host memory"} <= values.keys()
    assert "episodes overdue" not in values
    rate = values["groups rate"].values
    seconds = trace.slices[-1].end_ns / 1e9
    assert sum(rate) / len(rate) == pytest.approx(12 / seconds * 60, rel=0.5), "12 groups in the whole run"
    changes = Counter(track.name for number, track in trace.tracks.items() for _ in trace.counters.get(number, ()))
    assert changes["pool seat units"] == 1, "a value is written when it changes"


def test_the_share_of_attempts_that_ran_into_their_deadline_is_a_counter(tmp_path):
    async def slow(value: int, context: Context) -> int:
        await asyncio.sleep(3.0 if value % 4 == 0 else 1.0)
        return value

    graph = Graph("line")

    def forget(value: int, context: Context) -> None: ...

    work = graph.stage("work", slow, workers=4, deadline_s=2.0, on_error=Drop(), budget=None, placement=Inline())
    _ = graph.source("numbers", range(200)) >> work >> graph.sink("end", forget)
    trace = traced(tmp_path, graph)
    (counter,) = (number for number, track in trace.tracks.items() if track.name == "work overdue")
    assert trace.counters[counter].values[-1] == pytest.approx(0.25, abs=0.08)
    assert len(moments(trace, "overdue")) == 50
