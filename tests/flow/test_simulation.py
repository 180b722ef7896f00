"""Whole random graphs in virtual time with random kills, against a sequential interpreter of the same graph.

What a stage does with an item is a function of the seed and the item's identity, never of time, so the interpreter can say
which values reach the sink, whatever the schedule. With feedback it says which groups can be trained; the engine chooses.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import pytest

from flow import (
    Collect,
    Context,
    Drop,
    Emit,
    Filtered,
    Freshness,
    Gathered,
    Graph,
    Items,
    Many,
    Retry,
    Run,
    Shrink,
    Summary,
)
from flow.testing import run_virtual

Path = tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """A stage of a random graph. ``fail`` and ``filter`` are chances; ``spread`` allows several outputs for one input."""

    name: str
    fail: float
    filter: float
    spread: bool
    retries: int
    then: str


@dataclass(frozen=True)
class Plan:
    """A random graph: stages before the groups, between repeat and group, and after them."""

    seed: int
    tasks: int
    before: tuple[Step, ...]
    size: int
    inside: tuple[Step, ...]
    missing: object
    after: tuple[Step, ...]


@dataclass(frozen=True)
class Travel:
    """An item in the interpreter."""

    path: Path
    retry: int = 0
    failed: bool = False
    members: tuple[Path, ...] = ()


def make_plan(seed: int, *, grouped: bool, tasks: int, spread: bool = True) -> Plan:
    rnd = random.Random(seed)

    def steps(prefix: str, least: int, spread: bool) -> tuple[Step, ...]:
        return tuple(
            Step(
                f"{prefix}{index}", rnd.choice([0, 0.1, 0.3]), rnd.choice([0, 0.2]), spread and rnd.random() < 0.3,
                rnd.choice([0, 0, 1, 2]), rnd.choice(["drop", "emit"]),
            )
            for index in range(rnd.randint(least, 2))
        )  # fmt: skip

    missing = rnd.choice(["drop", Shrink(2), Shrink(1), Retry(1, then="drop"), Retry(2, then="shrink")])
    size = rnd.randint(2, 4) if grouped else 0
    after = steps("after", 0, spread) if grouped else ()
    return Plan(seed, tasks, steps("before", 0, True), size, steps("inside", 1, False) if grouped else (), missing, after)


def fate(plan: Plan, step: Step, path: Path, retry: int) -> str | int:
    """What a stage does with an item: raise, filter, or give this many outputs."""
    rnd = random.Random(f"{plan.seed} {step.name} {path} {retry}")
    if rnd.random() < step.fail:
        return "raise"
    if rnd.random() < step.filter:
        return "filter"
    return rnd.randint(0, 3) if step.spread else 1


# --- the interpreter ---


def through(plan: Plan, step: Step, item: Travel) -> list[Travel]:
    for again in range(step.retries + 1):
        retry = item.retry + again
        outcome = fate(plan, step, item.path, retry)
        if outcome == "filter":
            return []
        if outcome == "raise":
            continue
        if step.spread:
            return [Travel((*item.path, i), retry, item.failed, item.members) for i in range(int(outcome))]
        return [Travel(item.path, retry, item.failed, item.members)]
    return [Travel(item.path, item.retry + step.retries, True, item.members)] if step.then == "emit" else []


def through_all(plan: Plan, steps: tuple[Step, ...], items: list[Travel]) -> list[Travel]:
    for step in steps:
        items = [result for item in items for result in through(plan, step, item)]
    return items


def member(plan: Plan, path: Path, retry: int) -> tuple[bool, int]:
    """Whether one execution of a member succeeds, and its retry number at the end."""
    item = Travel(path, retry)
    for step in plan.inside:
        results = through(plan, step, item)
        if not results:  # the retry number that the engine saw last
            again = [fate(plan, step, item.path, item.retry + i) for i in range(step.retries + 1)]
            return False, item.retry + next((i for i, outcome in enumerate(again) if outcome != "raise"), step.retries)
        item = results[0]
    return not item.failed, item.retry


def group(plan: Plan, origin: Travel) -> list[Travel]:
    good: list[Path] = []
    for index in range(plan.size):
        path, retry = (*origin.path, index), 0
        times = plan.missing.times if isinstance(plan.missing, Retry) else 0
        for _ in range(times + 1):
            succeeded, last = member(plan, path, retry)
            if succeeded:
                good.append(path)
                break
            retry = last + 1
    drops = plan.missing == "drop" or (isinstance(plan.missing, Retry) and plan.missing.then == "drop")
    least = plan.missing.min_members if isinstance(plan.missing, Shrink) else 1
    whole = len(good) == plan.size if drops else len(good) >= least
    return [Travel(origin.path, 0, False, tuple(good))] if whole else []


def interpret(plan: Plan) -> Counter[tuple[Path, tuple[Path, ...]]]:
    items = through_all(plan, plan.before, [Travel((number,)) for number in range(plan.tasks)])
    if plan.size:
        items = [result for item in items for result in group(plan, item)]
    return Counter((item.path, item.members) for item in through_all(plan, plan.after, items))


# --- the graph ---


def stage_of(plan: Plan, step: Step, clock: random.Random):
    async def work(value: object, context: Context) -> object:
        await asyncio.sleep(clock.choice([0, 0, clock.random(), min(clock.paretovariate(1.5), 100)]))
        outcome = fate(plan, step, context.path, context.retry)
        if outcome == "raise":
            raise ValueError("drawn")
        if outcome == "filter":
            return Filtered("drawn")
        kept = value if isinstance(value, Gathered) else context.path
        return Many([kept] * int(outcome)) if step.spread else kept

    return work


def declare(plan: Plan, graph: Graph, clock: random.Random, cell=None) -> Iterator:
    """Nodes of the plan, in order, with random workers, orders and pools."""
    node = graph.source("tasks", range(plan.tasks))
    yield node

    def stage(step: Step, **more):
        final = Drop(10**6, 10**6) if step.then == "drop" else Emit(lambda value, failure, context: value, 10**6, 10**6)
        policy = Retry(step.retries, then=final, backoff_s=clock.choice([0, 1])) if step.retries else final
        needs = clock.choice([{}, {"a": 1}, {"b": 2}, {"a": 1, "b": 1}])
        order = clock.choice(["any", "input"])
        workers = clock.randint(1, 4)
        work = stage_of(plan, step, clock)
        return graph.stage(step.name, work, workers=workers, order=order, needs=needs, on_error=policy, **more)

    for step in plan.before:
        yield stage(step)
    if plan.size:
        yield graph.repeat("members", node, n=plan.size)
        for step in plan.inside:
            yield stage(step, reads=cell)
        yield graph.group("groups", node, missing=plan.missing, budget=None)
    for step in plan.after:
        yield stage(step)


def connect(graph: Graph, nodes: list, clock: random.Random, most: int = 0) -> None:
    for left, right in pairwise(nodes):
        _ = left >> right
        if clock.random() < 0.5:
            graph.edge(left, right, capacity=Items(max(clock.randint(1, 4), most, 4 if left.name == "members" else 0)))


def simulate(graph: Graph, seed: int, kill: float) -> tuple[Run, Summary]:
    async def main() -> tuple[Run, Summary]:
        run = Run(graph.build())
        async with asyncio.timeout(1_000_000):
            summary = await run.finish()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return run, summary

    return run_virtual(main(), seed=seed, kill=kill)


def assert_all_accounted_for(run: Run, summary: Summary) -> None:
    assert (summary.status, summary.faults, summary.leftovers) == ("completed", (), {})
    assert run.state.pools.free == run.state.pools.sizes
    assert all(node.turns == set() and not node.ready for node in run.state.nodes.values())


@pytest.mark.parametrize("block", range(6))
def test_every_item_ends_exactly_once_where_the_interpreter_says(block):
    """C1 to C4, S1 to S4, G1 to G5; S6, S7, S15, S19, S20, S41: lines and groups, with and without kills."""
    for seed in range(block * 50, block * 50 + 50):
        plan, clock = make_plan(seed, grouped=seed % 2 == 0, tasks=8), random.Random(seed)
        graph, got = Graph("random", pools={"a": 1, "b": 2}), Counter()

        async def keep(value: object, context: Context, got=got, clock=clock) -> None:
            await asyncio.sleep(clock.choice([0, 0.5]))
            got[context.path, value.members if isinstance(value, Gathered) else ()] += 1

        connect(graph, [*declare(plan, graph, clock), graph.sink("sink", keep)], clock)
        run, summary = simulate(graph, seed, kill=(0, 0.05, 0.2)[seed % 3])
        assert got == interpret(plan), f"seed {seed}"
        assert_all_accounted_for(run, summary)


@dataclass
class Trainer:
    """Counts what it was given."""

    clock: random.Random
    seen: Counter
    lags: list

    async def add(self, value: object, context: Context) -> None:
        await asyncio.sleep(self.clock.choice([0, 0.2]))
        self.seen[context.path] += 1
        self.lags.append(context.lag)

    async def finish(self, context: Context) -> str:
        await asyncio.sleep(self.clock.random() * 3)
        return "next"


def train(seed: int, late: str) -> tuple[Run, Summary, Trainer, Plan, int]:
    clock = random.Random(seed)
    max_lag, per_step, steps = seed % 3, clock.randint(1, 3), 4
    plan = make_plan(seed, grouped=True, tasks=150, spread=False)
    graph, trainer = Graph("training", pools={"a": 1, "b": 2}), Trainer(clock, Counter(), [])

    async def load(value: object, version: int) -> None:
        await asyncio.sleep(clock.choice([0, clock.random() * 5]))

    cell = graph.latest("weights", str, load=clock.choice([None, load]))
    sink = graph.sink("trainer", trainer, collect=Collect(per_step, steps=steps))
    connect(graph, [*declare(plan, graph, clock, cell), sink], clock, most=(max_lag + 1) * per_step)
    graph.feedback(sink, cell, initial="first", freshness=Freshness(max_lag, late))
    run, summary = simulate(graph, seed, kill=(0, 0.03, 0.1)[seed % 3])
    return run, summary, trainer, plan, steps * per_step


@pytest.mark.parametrize("block", range(6))
def test_nothing_is_trained_too_old_and_nothing_is_dropped_for_age(block):
    """F3, F4, S5, S14, S16, S18: every step full, every lag within the bound, every group once and one that can be trained."""
    for seed in range(block * 20, block * 20 + 20):
        run, summary, trainer, plan, wanted = train(seed, "wait")
        possible = {path for path, _ in interpret(plan)}
        assert all(lag is not None and 0 <= lag <= seed % 3 for lag in trainer.lags), f"seed {seed}: {trainer.lags}"
        assert trainer.seen.total() == min(wanted, len(trainer.seen)), f"seed {seed}"
        assert set(trainer.seen) <= possible
        assert len(trainer.seen) == wanted or len(possible) < wanted
        assert not any("stale" in node.dropped for node in summary.nodes.values())
        assert_all_accounted_for(run, summary)


def test_nothing_is_trained_too_old_where_late_groups_are_dropped():
    """S16, S17: counted, and every ticket comes back, or the steps would not fill."""
    stale = 0
    for seed in range(60, 100):
        run, summary, trainer, plan, wanted = train(seed, "drop")
        assert all(lag is not None and 0 <= lag <= seed % 3 for lag in trainer.lags), f"seed {seed}: {trainer.lags}"
        assert len(trainer.seen) == trainer.seen.total() <= wanted
        assert set(trainer.seen) <= {path for path, _ in interpret(plan)}
        assert_all_accounted_for(run, summary)
        stale += sum(node.dropped.get("stale", 0) for node in summary.nodes.values())
    assert stale > 0


def test_a_run_is_the_same_for_the_same_seed():
    first, again = train(5, "wait"), train(5, "wait")
    assert first[1] == again[1]
    assert first[2].seen == again[2].seen


def test_the_policies_drawn_here_cover_all_there_are():
    """A simulation that never fails, filters, spreads or shrinks would prove nothing."""
    plans = [make_plan(seed, grouped=True, tasks=1) for seed in range(30)]
    assert {type(plan.missing) for plan in plans} == {str, Shrink, Retry}
    steps = [step for plan in plans for step in (*plan.before, *plan.inside, *plan.after)]
    assert {step.then for step in steps} == {"drop", "emit"}
    assert {step.retries for step in steps} == {0, 1, 2}
    assert any(step.spread for step in steps)
