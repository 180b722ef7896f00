"""Groups in a running graph: opened at birth, closed once, retried, shrunk or dropped, and bounded."""

import asyncio
from collections import Counter

import pytest

from flow import (
    BudgetExceeded,
    Context,
    Drop,
    Emit,
    Fail,
    Failed,
    Filtered,
    Gathered,
    Graph,
    Retry,
    Run,
    Shrink,
    StageFailed,
    Summary,
)
from flow.testing import run_virtual


def training(work, missing="drop", tasks=3, n=4, workers=4, on_error=None, sink=None) -> tuple[Graph, list]:
    got: list = []

    def keep(group: Gathered[object], context: Context) -> None:
        got.append(group)

    graph = Graph("groups")
    source = graph.source("tasks", range(tasks))
    members = graph.repeat("members", source, n=n)
    stage = graph.stage("work", work, workers=workers, on_error=on_error or Drop(most=1000, of=1000))
    groups = graph.group("groups", stage, missing=missing)
    _ = source >> members >> stage >> groups >> graph.sink("sink", sink or keep)
    return graph, got


def finish(graph: Graph, seed: int = 0, kill: float = 0.0) -> Summary:
    async def main() -> Summary:
        async with asyncio.timeout(10_000):
            return await Run(graph.build()).finish()

    return run_virtual(main(), seed=seed, kill=kill)


async def tell_apart(value: int, context: Context) -> tuple[int, int]:
    await asyncio.sleep((context.member * 7 % 4) * 0.1)
    return context.birth, context.member


@pytest.mark.parametrize("kill", [0.0, 0.2])
@pytest.mark.parametrize("seed", range(8))
def test_members_meet_again_in_their_own_group_in_order(seed, kill):
    """S41, S71: by identity, whatever the order of arrival."""
    graph, got = training(tell_apart, tasks=6)
    finish(graph, seed, kill)
    assert {group.birth: group.members for group in got} == {b: tuple((b, m) for m in range(4)) for b in range(6)}


def broken_once(value: int, context: Context) -> int:
    if context.member == 1 and context.retry == 0:
        raise ValueError("at first")
    return context.retry


def broken(value: int, context: Context) -> int:
    if value == 1 and context.member == 2:
        raise ValueError("always")
    return context.retry


def test_a_lost_member_drops_its_group_and_no_other():
    """S8: what its siblings made is counted as given up."""
    graph, got = training(broken, workers=1)
    nodes = finish(graph).nodes
    assert sorted(group.birth for group in got) == [0, 2]
    assert dict(nodes["groups"].dropped) == {"member failed: ValueError": 1}
    assert sum(nodes["groups"].lost.values()) + sum(nodes["work"].dropped.values()) == 4


def test_a_lost_member_is_made_again():
    graph, got = training(broken_once, missing=Retry(1, then="drop"))
    finish(graph)
    assert [group.members for group in sorted(got, key=lambda g: g.birth)] == [(0, 1, 0, 0)] * 3


def test_no_two_attempts_have_one_key_where_copies_of_members_are_tried_again_too():
    """A journal, a tool and an environment tell attempts apart by it."""
    keys: list[tuple] = []

    def unlucky(value: int, context: Context) -> int:
        keys.append((*context.key, context.attempt))
        raise ValueError("always")

    graph = Graph("g")
    tasks = graph.source("tasks", range(2))
    members = graph.repeat("members", tasks, n=2)
    copies = graph.broadcast("copies", members)
    played = graph.stage("played", unlucky, on_error=Drop())
    groups = graph.group("groups", played, missing=Retry(2, then="shrink"))
    _ = tasks >> members >> copies >> played >> groups >> graph.sink("sink", lambda group, context: None)
    _ = (
        copies
        >> graph.stage("judged", unlucky, on_error=Retry(2, then=Drop()))
        >> graph.sink("log", lambda value, context: None)
    )
    finish(graph)
    assert len(keys) == len(set(keys)) == 2 * 2 * 3 + 2 * 2 * 3 * 3


def test_a_member_that_is_lost_for_good_shrinks_its_group():
    """S27: what is handed on holds the two that are real."""
    graph, got = training(broken, missing=Shrink(min_members=3))
    finish(graph)
    assert {g.birth: (len(g.members), g.failures, g.closed) for g in got} == {
        0: (4, (), "full"), 1: (3, ("ValueError",), "shrunk"), 2: (4, (), "full"),
    }  # fmt: skip


def test_a_group_without_enough_members_is_dropped():
    graph, got = training(lambda value, context: Filtered("dull") if context.member else value, missing=Shrink(2))
    summary = finish(graph)
    assert got == []
    assert dict(summary.nodes["groups"].dropped) == {"too few members": 3}


@pytest.mark.parametrize("fate", ["emit", "failed", "filtered"])
def test_every_kind_of_failure_reaches_the_barrier(fate):
    """S6: none of them leaves a group open for ever."""

    def work(value: int, context: Context) -> object:
        if context.member == 0:
            if fate == "filtered":
                return Filtered("dull")
            if fate == "failed":
                return Failed("half", "poor")
            raise ValueError("bad")
        return "good"

    graph, got = training(work, missing=Shrink(1), on_error=Emit(lambda value, failure, context: "made up"))
    finish(graph)
    reason = {"emit": "ValueError", "failed": "poor", "filtered": "dull"}[fate]
    assert [(g.members, g.failures) for g in got] == [(("good",) * 3, (reason,))] * 3


def test_a_member_that_never_ends_is_settled_by_its_deadline():
    """S4: one stuck member does not keep its group out for ever."""

    async def work(value: int, context: Context) -> int:
        await asyncio.sleep(10**9 if context.member == 3 and value == 0 else 1)
        return value

    graph, got = training(work, missing=Shrink(2))
    summary = finish(graph.with_("work", deadline_s=20))
    assert {g.birth: g.closed for g in got} == {0: "shrunk", 1: "full", 2: "full"}
    assert summary.seconds < 30


@pytest.mark.parametrize("seed", range(5))
def test_a_late_member_never_opens_its_group_again(seed):
    """G5: siblings that end in the moment their group is dropped are counted, one way or another, and that is all."""

    async def work(value: int, context: Context) -> int:
        await asyncio.sleep(1)
        if value == 0 and context.member == 0:
            raise ValueError("early")
        return value

    graph, got = training(work, tasks=2)
    summary = finish(graph, seed)
    assert [g.birth for g in got] == [1]
    lost, dropped = summary.nodes["groups"].lost, summary.nodes["work"].dropped
    assert lost.get("late", 0) + lost.get("group dropped", 0) + dropped.get("group closed", 0) == 3
    assert summary.open_groups == {"groups": 0}


@pytest.mark.parametrize("backoff_s", [0, 1])
def test_siblings_at_work_are_stopped_when_their_group_is_dropped(backoff_s):
    """F4, S17: what they would give is lost, so nobody waits for it; a stage that swallows the cancel changes nothing."""
    swallowed: list[int] = []

    async def work(value: int, context: Context) -> int:
        await asyncio.sleep(1 if context.member == 0 else 0.5)
        if value == 0 and context.member == 0:
            raise ValueError("early")
        try:
            await asyncio.sleep(1000 if value == 0 else 1)
        except asyncio.CancelledError:
            if context.member == 1:
                swallowed.append(context.member)
                return value
            raise
        return value

    policy = Retry(2, then=Drop(), backoff_s=backoff_s) if backoff_s else Drop()
    graph, got = training(work, tasks=2, on_error=policy)
    summary = finish(graph)
    assert [g.birth for g in got] == [1]
    assert swallowed == [1]
    assert (summary.nodes["work"].dropped["group closed"], summary.nodes["work"].given_back) == (3, 0)
    assert summary.seconds < 15


def test_an_evaluation_hands_on_groups_whose_members_all_failed():
    """S27: failed members have their values beside the others, not among them; a group of failures is not lost."""

    async def work(value: int, context: Context) -> object:
        if value == 0 or context.member == 1:
            return Failed(f"{value}.{context.member}", "TimedOut")
        return f"{value}.{context.member} ok"

    graph, got = training(work, tasks=2, missing=Shrink(min_members=0))
    finish(graph)
    assert {g.birth: (g.members, g.failed, len(g.failures), g.closed) for g in got} == {
        0: ((), ("0.0", "0.1", "0.2", "0.3"), 4, "shrunk"),
        1: (("1.0 ok", "1.2 ok", "1.3 ok"), ("1.1",), 1, "shrunk"),
    }


def test_a_dropped_member_has_a_reason_and_no_value():
    def work(value: int, context: Context) -> int:
        if context.member == 2:
            raise ValueError("bad")
        return value

    graph, got = training(work, tasks=1, missing=Shrink(0))
    finish(graph)
    assert [(g.members, g.failures, g.failed) for g in got] == [((0, 0, 0), ("ValueError",), ())]


def test_groups_that_are_dropped_one_after_another_end_the_run():
    """S2, S6: an endless source, a server that is down, and a barrier that drops every group; by its own budget."""

    async def work(value: int, context: Context) -> int:
        await asyncio.sleep(1)
        raise ConnectionError("refused")

    graph, _ = training(work, tasks=10**6)
    with pytest.raises(BudgetExceeded) as caught:
        finish(graph.with_("groups", budget=(7, 10)))
    assert str(caught.value) == (
        "node 'groups' dropped 8 of its last 8 groups; expected at most 7 of 10. The last reason was: member failed: "
        "ConnectionError. Repair what fails there, or raise budget=(7, 10); None for no limit."
    )
    with pytest.raises(BudgetExceeded, match="dropped 51 of its last 51 groups; expected at most 50 of 100"):
        finish(graph)


def test_a_barrier_without_a_budget_drops_as_many_groups_as_there_are():
    def work(value: int, context: Context) -> int:
        raise ConnectionError("refused")

    graph, got = training(work, tasks=200)
    summary = finish(graph.with_("groups", budget=None))
    assert (got, sum(summary.nodes["groups"].dropped.values())) == ([], 200)


def test_nothing_more_of_a_dropped_group_is_started():
    """S17: members that wait when their group is dropped are given up unstarted."""
    started: Counter[int] = Counter()

    def work(value: int, context: Context) -> int:
        started[value] += 1
        if value == 0:
            raise ValueError("bad")
        return value

    graph, _ = training(work, workers=1)
    summary = finish(graph)
    assert started == {0: 1, 1: 4, 2: 4}
    assert summary.nodes["work"].dropped["group closed"] == 3


def test_a_member_may_not_become_many():
    async def work(value: int, context: Context) -> object:
        from flow import Many

        return Many([1, 2])

    graph, _ = training(work)
    with pytest.raises(RuntimeError, match="expected at most one output for what takes part in a group"):
        finish(graph)


@pytest.mark.parametrize("seed", range(3))
def test_a_slow_consumer_bounds_the_groups_before_it(seed):
    """Back-pressure reaches the source through the barrier: nothing grows with the length of the run."""
    drawn: list[int] = []
    most: list[int] = []

    def tasks():
        for number in range(200):
            drawn.append(number)
            yield number

    async def slowly(group: Gathered[object], context: Context) -> None:
        await asyncio.sleep(1)
        most.append(len(drawn) - len(most))

    graph, _ = training(lambda value, context: value, sink=slowly)
    graph = graph.replace("tasks", tasks())
    finish(graph, seed)
    assert len(most) == 200
    # Groups at the sink's edge (2), whole before it (2), in the barrier's edge (2 members), at the stage, its workers and its
    # edge (8 + 4 members), in the repeat, its edge and the source: a dozen, and not two hundred.
    assert max(most) <= 12


def test_a_member_whose_failure_ends_the_run_takes_its_siblings_with_it():
    """S8: they are cancelled and gone before the error is raised, with the first cause on top."""
    ended: list[int] = []

    async def work(value: int, context: Context) -> int:
        if context.member == 2:
            raise ValueError("at once")
        await asyncio.sleep(10)
        ended.append(context.member)
        return value

    graph, _ = training(work, on_error=Fail())

    async def main() -> float:
        with pytest.raises(StageFailed, match="ValueError: at once"):
            await Run(graph.build()).finish()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) < 1
    assert ended == []
