"""What a deliberate fault of the engine must make fail, each in tens of milliseconds: walks, whole graphs, single tests."""

import asyncio
import importlib.util
import random
from collections import Counter
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from core_world import World
from killed_graphs import die_often
from saved_program import Counted, Program
from waiting_world import WaitingWorld

from flow import Context, Graph, Items, Run, Threads
from flow.testing import Kill, Life, run_virtual
from flow.testing import killed as killed_at_points
from flow.testing._script import pause

TESTS = Path(__file__).parents[1]


def probe(name: str, arguments: dict[str, Any]) -> None:
    """Run the probe of a name. Raises where the engine is wrong.

    Raises:
        LookupError: there is no such probe.
    """
    kind, _, rest = name.partition(" ")
    if kind == "core":
        for seed in range(40):
            for shape in rest.split("|"):
                World(shape).run(seed, 600)
    elif kind == "waiting":
        for seed in range(60):
            WaitingWorld(1 + seed % 3).run(seed, 200)
    elif kind == "graphs":
        GRAPHS[rest]()
    elif kind == "saved":
        saved()
    elif kind == "freshness":
        fresh(rest)
    elif kind == "selector":
        for seed in range(30):
            lags, stuck, stale = loaded("core/test_freshness.py").play(seed, 1, 4, "wait", 12)
            assert (max(lags) <= 1, stuck, stale) == (True, 0, 0)
    elif kind == "recalled":
        recalled(lag=rest == "with a lag")
    elif "::" in name:
        file, _, test = name.partition("::")
        getattr(loaded(file), test)(**arguments)
    else:
        raise LookupError(name)


@cache
def loaded(file: str) -> ModuleType:
    """A file of tests below ``tests/flow``, read apart from pytest's own copy."""
    spec = importlib.util.spec_from_file_location(f"probed_{Path(file).stem}", TESTS / file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fresh(world: str) -> None:
    """The engine against the checker of ``test_freshness_model``."""
    model = loaded("test_freshness_model.py")
    for seed in range(4):
        kinds = {
            "slow load": model.World(load_s=5.0, seed=seed), "heavy": model.World(max_lag=1, steps=20, seed=seed),
            "late dropped": model.World(late="drop", steps=20, batch=4, workers=40, seed=seed),
        }  # fmt: skip
        checker, summary = model.observed(kinds[world])
        assert checker.faults == []
        assert summary.balanced


def saved() -> None:
    """P2, P4, P6: graphs that are killed and go on. And a source that draws on a thread, and waits for room with an item."""
    for seed in (2, 19):
        _, failed = die_often(range(seed, seed + 1), most=2)
        assert failed == {}
    for nth in (1, 2, 3):
        programs: list[Program] = []

        def begin(programs: list[Program] = programs) -> Life:
            programs.append(Program(Path(), source=Slowly(), placement=Threads(), first=Items(1)))
            return Life(programs[-1].graph())

        with TemporaryDirectory() as folder:
            killed_at_points(begin, Path(folder), [Kill(0.25, suspend=True), Kill(point="commit.retained", nth=nth)])
        assert programs[-1].sink.taken == [number * number for number in range(8)]


class Slowly(Counted):
    """A source that is somewhere else already while its thread still has the value."""

    def draw(self) -> int:
        number = super().draw()
        pause(0.6)
        return number


def recalled(*, lag: bool) -> None:
    """Runs with a journal that are killed again and again."""
    tests = loaded("saving/test_recalled_run.py")
    for seed in (5, 6) if lag else (0, 7):
        with TemporaryDirectory() as folder:
            if lag:
                tests.test_with_a_lag_a_result_stands_only_for_the_version_it_was_made_with(Path(folder), seed, 1, "wait")
            else:
                tests.test_what_was_finished_is_made_once_and_no_attempt_number_comes_twice(Path(folder), seed)


def finished(graph: Graph, seed: int, kill: float) -> Run:
    """Run to the end and look at the books."""

    async def main() -> Run:
        run = Run(graph.build())
        summary = await run.finish()
        assert (summary.faults, summary.leftovers) == ((), {})
        assert run.state.pools.free == run.state.pools.sizes
        return run

    return run_virtual(main(), seed=seed, kill=kill)


def line(seed: int, count: int, orders: tuple[str, str], needs: tuple[dict[str, int], dict[str, int]]) -> tuple[Graph, list]:
    """Two stages of three workers that take random times, on edges of one or two items."""
    graph, rnd, got = Graph("line", pools={"engine": 1}), random.Random(seed), []

    async def work(value: int, context: Context) -> int:
        await asyncio.sleep(rnd.choice([0, 0, rnd.random(), 5 * rnd.random()]))
        return value

    async def keep(value: int, context: Context) -> None:
        await asyncio.sleep(rnd.choice([0, rnd.random()]))
        got.append(value)

    a = graph.source("a", range(count))
    first = graph.stage("first", work, workers=3, order=orders[0], needs=needs[0])
    second = graph.stage("second", work, workers=3, order=orders[1], needs=needs[1])
    sink = graph.sink("sink", keep)
    _ = a >> first >> second >> sink
    for left, right in ((a, first), (first, second), (second, sink)):
        graph.edge(left, right, capacity=Items(rnd.randint(1, 2)))
    return graph, got


def killed() -> None:
    """C1, C3, S3: workers are killed as soon as they are woken."""
    for seed in range(25):
        graph, got = line(seed, 12, ("any", "any"), ({"engine": 1}, {"engine": 1} if seed % 2 else {}))
        finished(graph, seed, 0.15)
        assert Counter(got) == Counter(range(12))


def shared_pool() -> None:
    """S3: who waits for room holds nothing that those behind it need."""
    for seed in range(10):
        graph, got = line(seed, 12, ("any", "any"), ({"engine": 1}, {"engine": 1}))
        finished(graph, seed, 0.0)
        assert Counter(got) == Counter(range(12))


def bounded() -> None:
    """C5: without kills no edge ever holds more than its bound."""
    for seed in range(5):
        graph, _ = line(seed, 12, ("any", "any"), ({}, {}))
        run = finished(graph, seed, 0.0)
        assert all(edge.high_water <= edge.max_items for node in run.state.nodes.values() for edge in node.inputs)


def shared_pool_in_order() -> None:
    """S3: who waits for its turn holds nothing that the one before it needs."""
    for seed in range(25):
        graph, got = line(seed, 12, ("input", "input"), ({"engine": 1}, {"engine": 1}))
        finished(graph, seed, 0.1)
        assert got == list(range(12))


GRAPHS = {"killed": killed, "bounded": bounded, "shared pool": shared_pool, "shared pool in order": shared_pool_in_order}
