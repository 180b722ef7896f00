"""Reads a declared graph as a line that the model knows: its workers, capacities, pools, groups and freshness, and no more."""

from collections.abc import Iterator, Sequence
from typing import Any

from flow import Inline, Plan, Retry, Shrink, Threads
from graphs.bench.model.spec import Line, Work

_PASSING = {"repeat": "repeat", "group": "barrier", "sink": "sink"}
"""Kinds of the graph's nodes that are no stage, as the model calls them."""


def line_of(plan: Plan) -> Line:
    """The line that a graph is.

    Args:
        plan: source -> stages -> repeat -> stages -> group -> stages -> collecting sink, with or without a way back.

    Raises:
        ValueError: it branches, or does what the model knows nothing of.
    """
    spec, names = plan.spec, _in_order(plan)
    faults = list(_unknown(plan, names))
    if faults:
        raise ValueError(f"expected a line that the event model knows, got graph '{spec.name}', in which {'; '.join(faults)}")
    kinds = [spec.nodes[name].kind for name in names]
    opens, closes = (kinds.index(kind) if kind in kinds else 0 for kind in ("repeat", "group"))
    bounds = {name: plan.capacities[spec.inputs(name)[0].name].items or 1 for name in names[1:]}
    works = {
        name: Work(name, node.workers, bounds[name], dict(node.needs), reads=node.reads is not None)
        for name, node in spec.nodes.items()
        if node.kind == "stage"
    }
    stages = [tuple(works[name] for name in part if name in works) for part in _parts(names, opens, closes)]
    collect, feedback = spec.nodes[names[-1]].collect, spec.feedback[0] if spec.feedback else None
    assert collect is not None
    assert collect.steps is not None
    missing = spec.nodes[names[closes]].missing if closes else "drop"
    freshness = None if feedback is None else feedback.freshness
    return Line(
        name=spec.name, batch=collect.items, steps=collect.steps, before=stages[0], members=stages[1], after=stages[2],
        size=spec.nodes[names[opens]].size if opens else 0,
        missing=_missing(missing), retries=missing.times if isinstance(missing, Retry) else 0,
        pools={name: units for name, units in spec.pools.items() if isinstance(units, int)},
        max_lag=None if freshness is None else freshness.max_lag,
        late="wait" if freshness is None else freshness.late,
        depth=None if freshness is None else freshness.depth,
        capacities={_PASSING[kind]: bounds[name] for name, kind in zip(names, kinds, strict=True) if kind in _PASSING},
    )  # fmt: skip


def _in_order(plan: Plan) -> Sequence[str]:
    depths = plan.spec.depths()
    return sorted(plan.spec.nodes, key=lambda name: depths[name])


def _parts(names: Sequence[str], opens: int, closes: int) -> list[Sequence[str]]:
    """Names before the repeat, inside it, and behind the barrier; without groups all are before."""
    return [names[:opens], names[opens:closes], names[closes:]] if opens else [names, (), ()]


def _missing(policy: Any) -> Any:
    return "retry" if isinstance(policy, Retry) and policy.times else "shrink" if isinstance(policy, Shrink) else "drop"


def _unknown(plan: Plan, names: Sequence[str]) -> Iterator[str]:
    """What the model knows nothing of, as clauses."""
    spec = plan.spec
    for name in names:
        node = spec.nodes[name]
        if len(spec.inputs(name)) > 1 or len(spec.outputs(name)) > 1:
            yield f"{name} has several edges on one side"
        if node.kind not in ("source", "stage", *_PASSING):
            yield f"{name} is a {node.kind}"
        if node.order != "any" or node.key is not None:
            yield f"{name} keeps an order"
        if not isinstance(node.placement, Inline | Threads):
            yield f"{name} runs in processes"
        if isinstance(node.on_error, Retry) or (isinstance(node.missing, Retry) and node.missing.then != "drop"):
            yield f"{name} retries otherwise than a barrier that then drops"
        if isinstance(node.missing, Shrink) and node.missing.min_members != 2:
            yield f"{name} shrinks to other than two"
        yield from (f"{name} needs rate {need}" for need in node.needs if need in spec.rates)
        if node.kind == "sink" and (node.collect is None or node.collect.steps is None):
            yield f"{name} has no number of steps"
    yield from (f"pool {name} changes its size" for name, units in spec.pools.items() if not isinstance(units, int))
    if len(spec.feedback) > 1:
        yield f"{len(spec.feedback)} ways lead back"
