"""The check of a random graph: a run of it, compared with the interpreter and with what holds for every graph.

Without feedback the interpreter says which items reach which end. With feedback the engine chooses which groups are trained, so
it says which can be; how many there must be and how old they may be follows from the declaration.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, cast

from .._item import Gathered
from ._collected import Collected
from ._graphs import END, RandomGraph, Training
from ._interpreter import Expected, Reached, expected
from ._orders import order_faults
from ._simulate import Simulated, simulate
from ._works import Diary, plain


def reached(collected: Collected[Any]) -> Reached:
    """Say what reached a sink."""
    return Counter((arrival.path, _members(arrival.value)) for arrival in collected.arrivals)


def _members(value: Any) -> Any:
    """The members of a gathered value, and theirs; ``None`` where it is none."""
    return plain(cast("Any", value)) if isinstance(value, Gathered) else None


def check_graph(drawn: RandomGraph, seed: int = 0, kill: float = 0.0, **disturbances: Any) -> Simulated:
    """Simulate a random graph and compare what came out with the interpreter.

    It is drawn as text too, and every order that it promises is looked at.

    Args:
        drawn: the graph.
        seed: of the schedule.
        kill: as for ``simulate``.
        disturbances: ``leave``, ``late`` and the others of ``simulate``.

    Raises:
        AssertionError: something was lost, doubled, out of order, too old, dropped for age where nothing may be, or left over.
    """
    sinks: defaultdict[str, Collected[Any]] = defaultdict(Collected)
    diary = Diary()
    graph = drawn.graph(sinks, diary)
    plan, picture = graph.build(quiet=True), graph.draw()
    assert all(f"[{name}]" in picture for name in plan.spec.nodes), f"expected every node in the drawing, got {picture}"
    simulated = simulate(plan, seed, kill, **disturbances)
    faults = [*order_faults(plan.spec, diary)]
    want = expected(drawn)
    for end in sorted({*sinks, *want}):
        faults += _differences(end, want.get(end, Expected(Counter(), Counter())), reached(sinks[end]))
    if drawn.training is not None:
        faults += _training_faults(drawn.training, simulated, sinks[END], want.get(END))
    assert not faults, (
        f"expected what the interpreter gives, got {'; '.join(faults)} (seed {seed}, kill {kill}, {disturbances} of {drawn})"
    )
    return simulated


def _differences(end: str, want: Expected, got: Reached) -> Iterator[str]:
    if added := got - want.may:
        yield f"{dict(added)} more at '{end}'"
    if lost := want.must - got:
        yield f"{dict(lost)} less at '{end}'"


def _training_faults(training: Training, simulated: Simulated, sink: Collected[Any], want: Expected | None) -> Iterator[str]:
    freshness, needed, got = training.freshness, training.items * training.steps, len(sink.arrivals)
    lags = [arrival.lag for arrival in sink.arrivals]
    stale = sum(node.dropped.get("stale", 0) for node in simulated.summary.nodes.values())
    waits = freshness.late == "wait"
    if not all(lag is not None and 0 <= lag <= freshness.max_lag for lag in lags):
        yield f"lags {lags} of at most {freshness.max_lag}"
    if got > needed or (waits and got < needed and want is not None and want.may.total() >= needed):
        yield f"{got} groups of {needed}"
    if waits and stale:
        yield f"{stale} groups dropped for age"
