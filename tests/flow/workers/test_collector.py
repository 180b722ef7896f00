"""Sinks that take their input in steps: how many, what happens to the rest, and how old the items are."""

import asyncio
import threading

import pytest

from flow import Collect, Context, Drop, Filtered, Freshness, Gathered, Graph, Retry, Run, StageFailed, Summary, Threads
from flow.testing import run_virtual


class Train:
    """Keeps what it was given, step by step. Named so that a step that is given up shows."""

    def __init__(self, step_s: float = 0.0) -> None:
        self.steps: list[list] = []
        self.lags: list[int | None] = []
        self._step: list = []
        self._step_s = step_s

    def add(self, value: object, context: Context) -> None:
        self._step.append(value)
        self.lags.append(context.lag)

    async def finish(self, context: Context) -> str:
        await asyncio.sleep(self._step_s)
        self.steps.append(self._step)
        self._step = []
        return f"version {len(self.steps)}"


def collect(train, count=10, **settings) -> Graph:
    graph = Graph("collect")
    _ = graph.source("source", range(count)) >> graph.sink("train", train, collect=Collect(**settings))
    return graph


def loop(train, work, *, max_lag=1, late="wait", steps=6, load=None, tasks=None, middle=None) -> Graph:
    graph = Graph("loop")
    cell = graph.latest("weights", str, load=load)
    source = graph.source("tasks", tasks or range(10**6))
    members = graph.repeat("members", source, n=2)
    stage = graph.stage("work", work, workers=6, reads=cell, on_error=Drop(most=1000, of=1000))
    groups = graph.group("groups", stage, missing=Retry(1, then="drop"))
    between = graph.stage("middle", middle or (lambda value, context: value), workers=2)
    sink = graph.sink("train", train, collect=Collect(2, steps=steps))
    _ = source >> members >> stage >> groups >> between >> sink
    graph.feedback(sink, cell, initial="version 0", freshness=Freshness(max_lag, late))
    return graph


def finish(graph: Graph, seed: int = 0) -> Summary:
    async def main() -> Summary:
        async with asyncio.timeout(100_000):
            return await Run(graph.build()).finish()

    return run_virtual(main(), seed=seed)


def test_a_step_takes_its_number_of_items():
    train = Train()
    summary = finish(collect(train, items=3))
    assert train.steps == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert (summary.nodes["train"].emitted, dict(summary.nodes["train"].dropped)) == (3, {"incomplete step": 1})


def test_a_short_last_step_is_taken_where_that_is_asked_for():
    """S77: nothing is dropped without a word, or else nothing is dropped."""
    train = Train()
    summary = finish(collect(train, items=4, end="short"))
    assert train.steps == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert summary.nodes["train"].dropped == {}


def test_a_run_is_complete_after_its_steps_and_the_rest_is_surplus():
    train = Train()
    summary = finish(collect(train, count=10**6, items=2, steps=3))
    assert train.steps == [[0, 1], [2, 3], [4, 5]]
    assert (summary.status, summary.leftovers) == ("completed", {})
    assert summary.nodes["train"].dropped["surplus"] < 10


def test_a_source_shorter_than_the_steps_ends_cleanly():
    """S3, S108: the number of steps done is reported, also when it is none."""
    train = Train()
    summary = finish(collect(train, count=3, items=4, steps=5))
    assert (train.steps, summary.status, summary.nodes["train"].emitted) == ([], "completed", 0)


@pytest.mark.parametrize("method", ["add", "finish"])
def test_a_step_that_fails_ends_the_run_and_names_the_item(method):
    train = Train()

    def breaks(*arguments) -> None:
        raise ArithmeticError("diverged")

    setattr(train, method, breaks)
    with pytest.raises(StageFailed, match=r"stage 'train' failed at item \d .*ArithmeticError: diverged"):
        finish(collect(train, items=2))


def test_the_collector_may_run_on_a_thread():
    train, names = Train(), []
    train.add = lambda value, context: names.append(threading.current_thread().name)
    train.finish = lambda context: names.append(threading.current_thread().name)
    graph = collect(train, count=4, items=2).with_("train", placement=Threads())
    asyncio.run(Run(graph.build()).finish())
    assert set(names) == {"headrace-train_0"}
    assert len(names) == 6


@pytest.mark.parametrize("during", ["add", "finish"])
def test_a_step_that_a_thread_completed_is_kept_when_the_run_is_suspended(during):
    """S13, S19: the step is applied, so its items are settled and its result published; an unfinished one gives them back."""
    inside, may_end, applied = threading.Event(), threading.Event(), []

    class Slow:
        def add(self, value: int, context: Context) -> None:
            if during == "add":
                inside.set()
                may_end.wait(10)

        def finish(self, context: Context) -> str:
            if during == "finish":
                inside.set()
                may_end.wait(10)
            applied.append(context.path)
            return "applied"

    graph = Graph("kept")
    sink = graph.sink("train", Slow(), collect=Collect(2), placement=Threads())
    _ = graph.source("source", range(9)) >> sink
    graph.feedback(sink, graph.latest("weights", str))

    async def main() -> tuple[Run, Summary]:
        run = Run(graph.build())
        task = asyncio.create_task(run.finish())
        await asyncio.to_thread(inside.wait, 10)
        run.suspend()
        await asyncio.sleep(0.01)
        may_end.set()
        return run, await task

    run, summary = asyncio.run(main())
    node = summary.nodes["train"]
    finished = int(during == "finish")
    assert (len(applied), node.emitted, summary.versions["weights"]) == (finished,) * 3
    assert (node.given_back, run.state.nodes["train"].meter.finished) == ((0, 2) if finished else (1, 0))
    assert (summary.status, summary.faults, run.state.nodes["train"].input.leased) == ("suspended", (), 0)


def test_a_finish_that_shrugs_a_cancel_off_is_kept_too_and_ends_the_worker():
    """S9: the cancel is not lost with it, or the run would go on for ever."""

    class Stubborn(Train):
        async def finish(self, context: Context) -> str:
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                return "applied"
            return "late"

    async def main() -> Summary:
        run = Run(collect(Stubborn(), count=10**6, items=2).build())
        asyncio.get_running_loop().call_later(5, run.suspend)
        return await run.finish()

    summary = run_virtual(main())
    assert (summary.status, summary.seconds, summary.nodes["train"].emitted) == ("suspended", 5, 1)
    assert summary.faults == ()


async def unequal(value: int, context: Context) -> int:
    await asyncio.sleep(50 if value % 5 == 0 else 1)
    return value


@pytest.mark.parametrize("max_lag", [0, 1, 2])
def test_no_item_is_older_than_the_bound_and_slow_tasks_are_trained_too(max_lag):
    """S16, S18: half a dozen slow ones among the fast; with ``wait`` none of them is thrown away."""
    train = Train(step_s=1)
    summary = finish(loop(train, unequal, max_lag=max_lag, steps=10))
    assert all(lag is not None and 0 <= lag <= max_lag for lag in train.lags)
    births = sorted(group.birth for step in train.steps for group in step)
    assert births == list(range(20))
    assert not any("stale" in node.dropped for node in summary.nodes.values())


def test_with_drop_what_became_too_old_is_counted_and_its_ticket_comes_back():
    """S16, S17: the choice shows in the ledger."""
    train = Train(step_s=1)
    summary = finish(loop(train, unequal, late="drop", steps=10))
    assert all(lag is not None and lag <= 1 for lag in train.lags)
    assert summary.nodes["groups"].dropped["stale"] + summary.nodes["train"].dropped.get("stale", 0) > 0
    assert len(train.steps) == 10


def test_with_no_lag_the_groups_of_a_step_are_added_in_birth_order():
    train = Train()
    finish(loop(train, unequal, max_lag=0))
    births = [group.birth for step in train.steps for group in step]
    assert births == sorted(births)


def test_filtered_groups_are_replaced_within_their_step():
    """S72, S108: a filter cannot starve the trainer, and every step is full."""

    def middle(group: Gathered[int], context: Context) -> Gathered[int] | Filtered:
        return Filtered("constant") if group.birth % 3 == 0 else group

    train = Train()
    summary = finish(loop(train, unequal, max_lag=0, middle=middle))
    assert [len(step) for step in train.steps] == [2] * 6
    assert summary.nodes["middle"].dropped["constant"] >= 5


@pytest.mark.parametrize("max_lag", [0, 1])
def test_weights_that_load_slower_than_a_step_stop_nothing(max_lag):
    """S5, S14: readers go on with what is in force; versions that were overtaken are skipped."""
    loaded: list[int] = []

    async def load(value: str, version: int) -> None:
        await asyncio.sleep(30)
        loaded.append(version)

    train = Train()
    summary = finish(loop(train, unequal, max_lag=max_lag, load=load, steps=8))
    assert all(lag is not None and lag <= max_lag for lag in train.lags)
    assert summary.versions == {"weights": 8}
    assert loaded == sorted(loaded)
    assert loaded[-1] == 8


def test_a_stage_reads_the_value_of_the_version_it_is_stamped_with():
    """S84: version and value are read at one moment."""
    read: list[tuple[str, int, int | None]] = []

    async def work(value: int, context: Context) -> int:
        now = context.read()
        read.append((now.value, now.version, context.version))
        await asyncio.sleep(1)
        return value

    finish(loop(Train(), work))
    assert {f"version {version}" == value and version == stamp for value, version, stamp in read} == {True}
    assert len({version for _, version, _ in read}) >= 4


def test_weights_that_cannot_be_loaded_end_the_run():
    async def load(value: str, version: int) -> None:
        raise OSError("no route")

    with pytest.raises(StageFailed, match=r"weights \(load of version 0\).*no route"):
        finish(loop(Train(), unequal, load=load))


def test_the_initial_value_is_loaded_before_anything_is_made_with_it():
    """S84: whoever serves the cell serves version 0 of this graph, not what an earlier graph left there."""
    loaded: list[tuple[str, int]] = []

    async def load(value: str, version: int) -> None:
        await asyncio.sleep(5)
        loaded.append((value, version))

    async def work(value: int, context: Context) -> int:
        assert loaded, "work began before the load"
        return value

    summary = finish(loop(Train(), work, load=load, steps=1))
    assert loaded == [("version 0", 0), ("version 1", 1)]
    assert summary.seconds == 5  # the load of version 1; what comes before the work does not count


def test_many_values_may_not_share_one_ticket():
    def middle(group: Gathered[int], context: Context) -> object:
        from flow import Many

        return Many([group, group])

    with pytest.raises(StageFailed, match="holds a ticket, got 2; hand on one value that holds them all"):
        finish(loop(Train(), unequal, middle=middle))


def test_one_line_may_end_before_another():
    """A held-out line with few items does not end the training beside it, nor does training wait for an endless one."""
    graph, first, second = Graph("two"), Train(), Train()
    _ = graph.source("a", range(3)) >> graph.sink("first", first, collect=Collect(1))
    _ = graph.source("b", range(10**6)) >> graph.sink("second", second, collect=Collect(2, steps=20))
    seen: list[int] = []

    async def watch(value: int, context: Context) -> None:
        await asyncio.sleep(1)
        seen.append(value)

    _ = graph.source("c", range(10**6)) >> graph.sink("third", watch)
    second._step_s = 1
    summary = finish(graph)
    assert (len(first.steps), len(second.steps), summary.status) == (3, 20, "completed")
    assert 15 <= len(seen) <= 25
