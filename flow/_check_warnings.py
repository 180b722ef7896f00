"""What ``build`` allows and tells all the same, since it is probably not meant."""

import inspect
import math
from collections.abc import Iterator, Mapping

from ._check_values import tickets
from ._limits import Freshness, Threads
from ._spec import NodeSpec, Spec, round_of
from ._types import may_give_many, untyped
from ._work import Advising

NOT_CHECKED = "an untyped edge"
"""What a warning says that is no news to whoever wrote a lambda."""


def warnings(spec: Spec) -> Iterator[str]:
    """Warnings of a graph without faults.

    Idle workers, short sources, chance in the order, weights overruled, untyped edges, idle placements, and what stages say.
    """
    yield from _idle_for_tickets(spec)
    for node in spec.nodes.values():
        yield from _idle_for_units(spec, node)
        yield from _short(spec, node)
        yield from _chance(spec, node)
        yield from _impatient(spec, node)
    for edge in spec.edges:
        if untyped(spec.nodes[edge.source].gives) or untyped(spec.nodes[edge.target].takes):
            yield f"{spec.name}.{edge.name} ({edge.where}): {NOT_CHECKED}; annotate the stages to have it checked"
    for node in spec.nodes.values():
        if isinstance(node.placement, Threads) and _asynchronous(node):
            yield f"{_at(spec, node)}: its placement has no effect on what runs on the loop anyway"
    for node in spec.nodes.values():
        if isinstance(node.stage, Advising):
            yield from (f"{_at(spec, node)}: {line}" for line in node.stage.advice(_freshness(spec, node)))


def _at(spec: Spec, node: NodeSpec) -> str:
    return f"{spec.name}.{node.name} ({node.where})"


def _idle_for_tickets(spec: Spec) -> Iterator[str]:
    for sink, count in tickets(spec).items():
        path = spec.path(sink)
        size = spec.nodes[path[0]].size
        for name in path:
            node = spec.nodes[name]
            most = count * size if spec.enclosing(name) else count
            if node.kind == "stage" and node.workers > most:
                yield (
                    f"{_at(spec, node)}: {node.workers} workers, but at most {most} items can be in "
                    f"flight ({count} tickets of {size}); the rest is never busy"
                )


def _idle_for_units(spec: Spec, node: NodeSpec) -> Iterator[str]:
    for pool, units in node.needs.items():
        most = spec.pool_bounds(pool)[1] if pool in spec.pools else 0
        if pool in spec.pools and most // units < node.workers:
            yield (
                f"{_at(spec, node)}: {node.workers} workers, but pool '{pool}' of {most} units lets at most "
                f"{most // units} run at once ({units} each); the rest is never busy"
            )


def _short(spec: Spec, node: NodeSpec) -> Iterator[str]:
    """Sources that end before a sink has all its steps (rule B5)."""
    if node.collect is None or node.collect.steps is None:
        return
    items, steps = node.collect.items, node.collect.steps
    most = _lengths(spec)[node.name]
    if most is not None and most < items * steps:
        enough = most // items if node.collect.end == "drop" else math.ceil(most / items)
        before = spec.ancestors(node.name)
        sources = [f"'{name}'" for name in spec.nodes if name in before and spec.nodes[name].kind == "source"]
        yield (
            f"{_at(spec, node)}: {steps} steps of {items} are {items * steps} items, but {' and '.join(sources)} can fill no "
            f"more than {most}, enough for {enough}; draw longer, or ask for fewer steps"
        )


def _lengths(spec: Spec) -> dict[str, int | None]:
    """Items that can reach each node at most, as far as the lengths of sources tell; ``None`` for no bound."""
    reaching: dict[str, int | None] = {}
    depths = spec.depths()
    for name in sorted(spec.nodes, key=lambda name: depths[name]):
        given = [_given(spec, spec.nodes[edge.source], reaching) for edge in spec.inputs(name)]
        known = [length for length in given if length is not None]
        reaching[name] = sum(known) if len(known) == len(given) else None
    return reaching


def _given(spec: Spec, node: NodeSpec, reaching: Mapping[str, int | None]) -> int | None:
    """Items that a node can give on one edge."""
    if node.kind == "source":
        return len(node.stage) if hasattr(node.stage, "__len__") else None
    if node.kind == "versions" or (node.kind == "stage" and may_give_many(node.stage)):
        return None
    opener = spec.opener(node.name) if node.kind == "group" else None
    length = reaching[opener or node.name]
    return length if length is None or node.kind != "repeat" else length * node.size


def _impatient(spec: Spec, node: NodeSpec) -> Iterator[str]:
    """Merges whose patience ends before the weights would let the lightest input pass."""
    if node.kind != "merge" or node.patience is None or len(set(node.weights.values())) < 2:
        return
    asked = round_of(node.weights.values()) - 1
    if node.patience < asked:
        weights = ", ".join(f"{weight} of {name}" for name, weight in node.weights.items())
        yield (
            f"{_at(spec, node)}: with weights {weights} an input is passed over {asked} times in a row, but its patience of "
            f"{node.patience} ends before; leave patience out to keep the weights"
        )


def _chance(spec: Spec, node: NodeSpec) -> Iterator[str]:
    """Nodes that promise an order, or depend on it, behind one that leaves it to chance (rule B6)."""
    if not _orders(spec, node):
        return
    what = "keeps the order of its inputs" if node.collect is None else "fills its steps in order of arrival"
    seen, rest = {node.name}, [node.name]
    while rest:
        for edge in spec.inputs(rest.pop()):
            before = spec.nodes[edge.source]
            if before.name in seen:
                continue
            seen.add(before.name)
            if (remedy := _remedy(before)) is not None:
                yield f"{_at(spec, node)}: {what}, which '{before.name}' ({before.where}) leaves to chance; {remedy}"
            elif not _orders(spec, before):  # which has a warning of its own where it needs one
                rest.append(before.name)


def _orders(spec: Spec, node: NodeSpec) -> bool:
    return node.order == "input" or (node.collect is not None and _freshness(spec, node) is None)


def _freshness(spec: Spec, node: NodeSpec) -> Freshness | None:
    return next((feedback.freshness for feedback in spec.feedback if feedback.source == node.name), None)


def _remedy(node: NodeSpec) -> str | None:
    """What would take the chance out of the order behind a node; ``None`` where there is none in it."""
    if node.kind == "balance":
        return "graph.route decides by the item, whatever the timing"
    if node.kind == "merge":
        return "where runs must repeat, collect groups with Freshness(0), which are taken in order of birth"
    if node.workers > 1 and node.order != "input":
        return "set order='input' there if runs must repeat"
    return None


def _asynchronous(node: NodeSpec) -> bool:
    work = node.stage if node.collect is None else node.stage.add
    return inspect.iscoroutinefunction(work) or inspect.iscoroutinefunction(getattr(work, "__call__", None))  # noqa: B004
