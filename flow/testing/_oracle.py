"""What a random graph gives, told without the engine: a sequential interpreter, and the check of a run against it.

Without feedback the interpreter says which items reach the sink. With feedback the engine chooses which groups are trained, so
it says which can be; how many there must be and how old they may be follows from the declaration.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from .._item import Gathered
from .._policy import Retry, Shrink
from ._collected import Collected
from ._graphs import Pair, Part, RandomGraph, Step
from ._simulate import Simulated, simulate

Path = tuple[int, ...]
Reached = Counter[tuple[Path, Any]]
"""How often which (path, members) reached the sink. The members of a group are those of the groups it was made of, if any."""


@dataclass(frozen=True)
class Travel:
    """An item in the interpreter. ``members`` is ``None`` until it was gathered."""

    path: Path
    members: Any = None
    retry: int = 0
    failed: bool = False

    @property
    def value(self) -> Any:
        """What a barrier gathers of it."""
        return self.path if self.members is None else self.members


def expected(drawn: RandomGraph) -> Reached:
    """Say what reaches the sink, or with feedback what may."""
    items = [Travel((index,)) for index in range(drawn.tasks)]
    for part in drawn.parts:
        items = [result for item in items for result in _through(drawn.seed, part, item)]
    return Counter((item.path, item.members) for item in items)


def reached(collected: Collected[Any]) -> Reached:
    """Say what reached a sink."""
    return Counter((arrival.path, _members(arrival.value)) for arrival in collected.arrivals)


def check_graph(drawn: RandomGraph, seed: int = 0, kill: float = 0.0, **disturbances: Any) -> Simulated:
    """Simulate a random graph and compare what came out with the interpreter.

    Args:
        drawn: the graph.
        seed: of the schedule.
        kill: as for ``simulate``.
        disturbances: ``leave``, ``late`` and the others of ``simulate``.

    Raises:
        AssertionError: something was lost, doubled, too old, dropped for age where nothing may be, or left over.
    """
    sink: Collected[Any] = Collected()
    simulated = simulate(drawn.graph(sink), seed, kill, **disturbances)
    want, got = expected(drawn), reached(sink)
    where = f"(seed {seed}, kill {kill}, {disturbances} of {drawn})"
    if drawn.training is None:
        lost, added = want - got, got - want
        assert want == got, f"expected what the interpreter gives, got {dict(added)} more and {dict(lost)} less {where}"
        return simulated
    faults = [fault for fault in _training_faults(drawn, simulated, sink, want, got) if fault]
    assert not faults, f"expected steps of fresh groups, got {'; '.join(faults)} {where}"
    return simulated


def _training_faults(
    drawn: RandomGraph, simulated: Simulated, sink: Collected[Any], want: Reached, got: Reached
) -> Sequence[str | None]:
    assert drawn.training is not None
    freshness, needed = drawn.training.freshness, drawn.training.items * drawn.training.steps
    lags = [arrival.lag for arrival in sink.arrivals]
    stale = sum(node.dropped.get("stale", 0) for node in simulated.summary.nodes.values())
    waits = freshness.late == "wait"
    too_few = waits and got.total() < needed and want.total() >= needed
    return [
        None if all(lag is not None and 0 <= lag <= freshness.max_lag for lag in lags) else f"lags {lags}",
        f"groups twice: {dict(got - want)}" if got - want else None,
        f"{got.total()} groups of {needed}" if too_few or got.total() > needed else None,
        f"{stale} groups dropped for age" if waits and stale else None,
    ]


def _through(seed: int, part: Part, item: Travel) -> list[Travel]:
    """What a part makes of an item: one case for each kind of part."""
    return _step(seed, part, item)[0] if isinstance(part, Step) else _pair(seed, part, item)


def _step(seed: int, step: Step, item: Travel) -> tuple[list[Travel], int]:
    """What a stage makes of an item, and the last retry number it tried."""
    last = item.retry + step.retries
    for retry in range(item.retry, last + 1):
        fate = step.fate(seed, item.path, retry)
        if fate == "raise":
            continue
        if fate == "filter":
            return [], retry
        passed = replace(item, retry=retry)
        return [replace(passed, path=(*item.path, i)) for i in range(fate)] if step.spread else [passed], retry
    return [replace(item, retry=last, failed=True)] if step.then == "emit" else [], last


def _pair(seed: int, pair: Pair, origin: Travel) -> list[Travel]:
    members = [_member(seed, pair, replace(origin, path=(*origin.path, index), failed=False)) for index in range(pair.size)]
    good = tuple(member.value for member in members if member is not None)
    drops = pair.missing == "drop" or (isinstance(pair.missing, Retry) and pair.missing.then == "drop")
    fewest = pair.size if drops else pair.missing.min_members if isinstance(pair.missing, Shrink) else 1
    return [Travel(origin.path, good)] if len(good) >= fewest else []


def _member(seed: int, pair: Pair, member: Travel) -> Travel | None:
    """A member as the barrier gets it, after as many rounds as it grants; ``None`` where all of them fail."""
    retry = 0
    for _ in range((pair.missing.times if isinstance(pair.missing, Retry) else 0) + 1):
        items, last = [replace(member, retry=retry)], retry
        for step in pair.inside:
            if items:
                items, last = _step(seed, step, items[0])
        if items and not items[0].failed:
            return items[0]
        retry = last + 1
    return None


def _members(value: Any) -> Any:
    """The members of a gathered value, and theirs; ``None`` where it is none."""
    if not isinstance(value, Gathered):
        return None
    members = cast("Gathered[Any]", value).members
    return tuple(member if _members(member) is None else _members(member) for member in members)
