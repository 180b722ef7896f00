"""Small graphs for model checking of the core: each has a feature whose transitions differ. Built once; a plan is frozen."""

from collections.abc import Callable
from functools import cache

from flow import Collect, Context, Cost, Drop, Freshness, Gathered, Graph, Items, Plan, Retry, Shrink

LOOPS = {
    "loop, drop": ("drop", Freshness(1), 1),
    "loop, retry": (Retry(1, then="drop"), Freshness(1), 2),
    "loop, retry then shrink": (Retry(2, then="shrink"), Freshness(2), 1),
    "loop, shrink": (Shrink(1), Freshness(0), 2),
    "loop, late dropped": ("drop", Freshness(1, "drop"), 1),
    "loop, late dropped and retry": (Retry(1, then="drop"), Freshness(1, "drop"), 2),
    "loop, depth": (Shrink(2), Freshness(3, depth=1), 1),
}
"""(missing, freshness, groups a step) by name."""


def same(value: object, context: Context) -> object:
    """A stage; the machine acts in its place."""
    return value


def end(value: object, context: Context) -> None:
    """A sink; the machine acts in its place."""


class Steps:
    """A sink that collects; the machine acts in its place."""

    def add(self, value: object, context: Context) -> None:
        """Take one."""

    def finish(self, context: Context) -> str:
        """Complete a step."""
        return "next"


def number_of(value: object) -> int:
    """A number for any value: keys and costs depend on it."""
    return value.birth if isinstance(value, Gathered) else int(value)  # type: ignore[call-overload]


def line() -> Graph:
    """Bounds in items, and in cost."""
    graph = Graph("line")
    a, b, c = graph.source("a", [1]), graph.stage("b", same, workers=3), graph.stage("c", same, workers=2)
    sink = graph.sink("sink", end)
    _ = a >> b >> c >> sink
    graph.edge(a, b, capacity=Items(3))
    graph.edge(b, c, capacity=Items(4) | Cost(6, lambda value: 1 + number_of(value) % 3))
    return graph


def bound() -> Graph:
    """One stage keeps the order of its inputs, one is serial by key."""
    graph = Graph("bound")
    a = graph.source("a", [1])
    ordered = graph.stage("ordered", same, workers=3, order="input")
    keyed = graph.stage("keyed", same, workers=3, key=lambda value: number_of(value) % 3)
    sink = graph.sink("sink", end)
    _ = a >> ordered >> keyed >> sink
    graph.edge(ordered, keyed, capacity=Items(6))
    return graph


def branches() -> Graph:
    """Every kind of fan, outside a pair."""
    graph = Graph("branches")
    a, b = graph.source("a", [1]), graph.source("b", [1])
    first = graph.merge("first", [a, b], weights={"a": 9}, patience=3)
    odd, even = graph.stage("odd", same), graph.stage("even", same, workers=2)
    kinds = graph.route("kinds", first, by=lambda value: number_of(value) % 2, to={0: even, 1: odd}, on_error=Drop())
    joined = graph.merge("joined", [odd, even])
    copies = graph.broadcast("copies", joined)
    shares = graph.balance("shares", copies)
    _ = first >> kinds
    _ = joined >> copies >> shares >> graph.sink("left", end)
    _ = shares >> graph.sink("right", end)
    _ = copies >> graph.sink("log", end)
    return graph


def two_sinks() -> Graph:
    """Two lines with a number of steps each."""
    graph = Graph("two sinks")
    a = graph.source("a", [1])
    copies = graph.broadcast("copies", a)
    left, right = graph.stage("left", same), graph.stage("right", same)
    _ = a >> copies >> left >> graph.sink("first", Steps(), collect=Collect(2, steps=2))
    _ = copies >> right >> graph.sink("second", Steps(), collect=Collect(1, steps=6))
    _ = copies >> graph.sink("log", end)
    return graph


def pooled() -> Graph:
    """Pools of which one is resized, and a rate."""
    graph = Graph("pooled", pools={"engine": 2, "sandbox": (1, 3)}, rates={"search": 0.5})
    a = graph.source("a", [1])
    b = graph.stage("b", same, workers=3, needs={"engine": 1, "search": 1})
    c = graph.stage("c", same, workers=2, needs={"engine": 2, "sandbox": 1})
    _ = a >> b >> c >> graph.sink("sink", end)
    return graph


def loop(name: str) -> Graph:
    """A pair with feedback."""
    missing, freshness, per_step = LOOPS[name]
    graph = Graph("loop")
    cell = graph.latest("w", str)
    tasks = graph.source("tasks", [1])
    members = graph.repeat("members", tasks, n=2)
    work = graph.stage("work", same, workers=4, reads=cell)
    groups = graph.group("groups", work, missing=missing, budget=None)  # type: ignore[arg-type]
    kept = graph.stage("kept", same)
    train = graph.sink("train", Steps(), collect=Collect(per_step, steps=12))
    _ = tasks >> members >> work >> groups >> kept >> train
    graph.edge(kept, train, capacity=Items(16))
    graph.feedback(train, cell, initial="first", freshness=freshness)
    return graph


def inside() -> Graph:
    """Every kind of fan inside a pair, one with a branch of its own to a log."""
    graph = Graph("inside")
    cell = graph.latest("w", str)
    tasks = graph.source("tasks", [1])
    members = graph.repeat("members", tasks, n=2)
    copies = graph.broadcast("copies", members)
    odd, even = graph.stage("odd", same, reads=cell, workers=2), graph.stage("even", same, workers=2)
    kinds = graph.route("kinds", copies, by=lambda value: number_of(value) % 2, to={0: even, 1: odd})
    joined = graph.merge("joined", [odd, even], patience=2)
    # No retries here: the copies of a member made again are called as the first ones were, and these books go by paths.
    groups = graph.group("groups", joined, missing=Shrink(1), budget=None)
    train = graph.sink("train", Steps(), collect=Collect(1))
    _ = tasks >> members >> copies >> kinds
    _ = copies >> graph.sink("log", end)
    _ = joined >> groups >> train
    graph.feedback(train, cell, initial="first", freshness=Freshness(1))
    return graph


MAKERS: dict[str, Callable[[], Graph]] = {
    "line": line, "bound": bound, "branches": branches, "two sinks": two_sinks, "pooled": pooled, "inside": inside,
}  # fmt: skip
SHAPES = (*MAKERS, *LOOPS)
"""Names of all graphs."""


@cache
def plan_of(shape: str) -> Plan:
    """The built graph of a name."""
    return MAKERS[shape]().build() if shape in MAKERS else loop(shape).build()
