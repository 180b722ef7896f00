"""What ``build`` proves about numbers: each setting by itself, and that capacities, pools and tickets are feasible together."""

import dataclasses
import difflib
from collections.abc import Iterator

from ._change import FIELDS, SETTINGS
from ._core.freshness import tickets_of
from ._errors import Fault
from ._policy import Drop, Emit, Fail, Retry, Shrink
from ._spec import NodeSpec, Spec

_UNSET = {
    each.name: each.default if each.default_factory is dataclasses.MISSING else each.default_factory()
    for each in dataclasses.fields(NodeSpec)
}
"""What a field holds that nobody set."""


def tickets(spec: Spec) -> dict[str, int]:
    """Tickets that govern each sink with freshness, by the sink's name."""
    found: dict[str, int] = {}
    for feedback in spec.feedback:
        node = spec.nodes.get(feedback.source)
        if feedback.freshness is not None and node is not None and node.collect is not None:
            found[feedback.source] = tickets_of(feedback.freshness, node.collect.items)
    return found


def settings(spec: Spec) -> Iterator[Fault]:
    """Settings that are wrong whatever stands beside them."""
    yield from _shared(spec)
    for node in spec.nodes.values():
        yield from _foreign(spec, node)
        yield from _numbers(spec, node)
        yield from _policies(spec, node)
        yield from _needs(spec, node)
    for edge in spec.edges:
        yield from _least(f"{spec.name}.{edge.name}.capacity", edge.capacity.items, 1, edge.where)
        if edge.durable and edge.source in spec.nodes and (kind := spec.nodes[edge.source].kind) != "stage":
            yield Fault(
                "B7", f"{spec.name}.{edge.name}.durable", "a stage before a durable edge, whose work is not done again",
                f"the {kind} '{edge.source}'", edge.where, "leave it out: what no stage made, a commit holds by itself",
            )  # fmt: skip
    for feedback in spec.feedback:
        if feedback.freshness is not None:
            path = f"{spec.name}.{feedback.source}->{feedback.cell}.max_lag"
            yield from _least(path, feedback.freshness.max_lag, 0, feedback.where)
            depth, most = feedback.freshness.depth, feedback.freshness.max_lag
            if depth is not None and not 0 <= depth <= max(most, 0):
                yield Fault(
                    "F5", path.replace("max_lag", "depth"), f"from 0 to max_lag, which is {most}", f"{depth}", feedback.where,
                    "lower it, or raise max_lag: more on its way than may ever be trained in time is lost",
                )  # fmt: skip


def _least(path: str, value: float | None, least: int, where: str) -> Iterator[Fault]:
    if value is not None and value < least:
        yield Fault("B5", path, f"at least {least}", f"{value}", where, "raise it")


def _numbers(spec: Spec, node: NodeSpec) -> Iterator[Fault]:
    path = f"{spec.name}.{node.name}"
    yield from _least(f"{path}.workers", node.workers, 1, node.where)
    yield from _least(f"{path}.n", node.size, 1, node.where)
    if node.collect is not None:
        yield from _least(f"{path}.collect.items", node.collect.items, 1, node.where)
        yield from _least(f"{path}.collect.steps", node.collect.steps, 1, node.where)
    if node.deadline_s is not None and node.deadline_s <= 0:
        yield Fault(
            "B5", f"{path}.deadline_s", "a time above 0", f"{node.deadline_s}", node.where, "raise it, or None for half an hour"
        )
    for name, weight in node.weights.items():
        yield from _least(f"{path}.weights.{name}", weight, 1, node.where)
    yield from _least(f"{path}.patience", node.patience, 1, node.where)
    if node.key is not None and node.order == "input":
        yield Fault(
            "S2", f"{path}.order", "one order: 'any' beside a key, which keeps the order of equal keys", "'input' and a key",
            node.where, "leave out the one that is not meant: order='input' keeps the order of all inputs",
        )  # fmt: skip


def _policies(spec: Spec, node: NodeSpec) -> Iterator[Fault]:
    path = f"{spec.name}.{node.name}"
    final = node.on_error
    if isinstance(final, Retry):
        yield from _least(f"{path}.on_error.times", final.times, 0, node.where)
        final = final.then
    if node.kind == "route" and not isinstance(node.on_error, Fail | Drop):
        yield Fault(
            "B5", f"{path}.on_error", "Fail() or Drop()", f"{type(node.on_error).__name__}(...)", node.where,
            "a key does not change with a retry, and what has none has no branch to be emitted to",
        )  # fmt: skip
    if not isinstance(final, Fail | Drop | Emit):
        yield Fault(
            "B5", f"{path}.on_error.then", "Fail(), Drop() or Emit(...)", f"{final!r}", node.where,
            "'drop' and 'shrink' are for groups; a stage takes Drop()",
        )  # fmt: skip
    if isinstance(final, Drop | Emit):
        yield from _window(f"{path}.on_error", final.most, final.of, node.where)
        yield from _least(f"{path}.on_error.most", final.most, 0, node.where)
        yield from _least(f"{path}.on_error.of", final.of, 1, node.where)
    if node.budget is not None:
        yield from _window(f"{path}.budget", *node.budget, node.where)
        yield from _least(f"{path}.budget.most", node.budget[0], 0, node.where)
        yield from _least(f"{path}.budget.of", node.budget[1], 1, node.where)
    if isinstance(node.missing, Retry):
        yield from _least(f"{path}.missing.times", node.missing.times, 0, node.where)
        if node.missing.then not in ("drop", "shrink"):
            yield Fault(
                "B5", f"{path}.missing.then", "'drop' or 'shrink'", f"{node.missing.then!r}", node.where,
                "say what becomes of the group: Retry(1, then='drop')",
            )  # fmt: skip
    if isinstance(node.missing, Shrink):
        yield from _least(f"{path}.missing.min_members", node.missing.min_members, 0, node.where)


def _window(path: str, most: int, of: int, where: str) -> Iterator[Fault]:
    if most > of >= 1:
        yield Fault(
            "B5", path, "(most, of) with most not above of", f"({most}, {of})", where,
            f"turn them round: ({of}, {most}); budget=None, or most as many as of, is no limit",
        )  # fmt: skip


def _needs(spec: Spec, node: NodeSpec) -> Iterator[Fault]:
    path = f"{spec.name}.{node.name}.needs"
    for name, units in node.needs.items():
        yield from _least(f"{path}.{name}", units, 1, node.where)
        if name in spec.pools:
            yield from _fits(path, name, units, spec.pool_bounds(name), node.where)
        elif name not in spec.rates:
            near = difflib.get_close_matches(name, [*spec.pools, *spec.rates], 1)
            hint = f"did you mean '{near[0]}'? Or " if near else ""
            yield Fault(
                "B5", path, f"a pool '{name}' of at least {_units(units)}, or a rate of that name",
                f"no pool and no rate '{name}'", node.where, f"{hint}declare it: Graph(..., pools={{'{name}': {units}}})",
            )  # fmt: skip


def _fits(path: str, pool: str, units: int, bounds: tuple[int, int], where: str) -> Iterator[Fault]:
    least, most = bounds
    got = f"a pool of {most}" if least == most else f"a pool of {least} to {most}"
    if most < units:
        yield Fault(
            "B5", path, f"a pool '{pool}' of at least {_units(units)}", got, where,
            f"raise the pool to {units}, or need less",
        )  # fmt: skip
    elif least < units:
        yield Fault(
            "B5", path, f"a pool '{pool}' of at least {_units(units)} at any time",
            f"{got}: once it is down to {least}, nothing starts", where,
            f"raise the least to {units}: pools={{'{pool}': ({units}, {most})}}",
        )  # fmt: skip


def _units(count: int) -> str:
    return "1 unit" if count == 1 else f"{count} units"


def _shared(spec: Spec) -> Iterator[Fault]:
    """Pools and rates by themselves."""
    for pool in spec.pools:
        least, most = spec.pool_bounds(pool)
        yield from _least(f"{spec.name}.pools.{pool}", least, 1, spec.where)
        if most < least:
            yield Fault(
                "B5", f"{spec.name}.pools.{pool}", "(least, most) with most not below least", f"({least}, {most})", spec.where,
                f"turn them round: ({most}, {least})",
            )  # fmt: skip
    for rate, starts in spec.rates.items():
        if not 0 < starts < float("inf"):
            yield Fault(
                "B5", f"{spec.name}.rates.{rate}", "starts per second, above 0 and finite", f"{starts}", spec.where,
                "raise it, or leave the rate out for no limit",
            )  # fmt: skip


def _foreign(spec: Spec, node: NodeSpec) -> Iterator[Fault]:
    """Settings that a node of this kind does not look at, and that would be ignored."""
    own = SETTINGS[node.kind]
    for setting, name in FIELDS.items():
        value = getattr(node, name)
        if setting not in own and value != _UNSET[name]:
            wanted = f"a setting of a {node.kind} ({', '.join(own)})" if own else f"no setting, since a {node.kind} has none"
            got = f"{setting}={getattr(value, '__name__', value)!r}"
            yield Fault(
                "B5", f"{spec.name}.{node.name}.{setting}", wanted, got, node.where, "leave it out, or set it on another node"
            )
    if node.collect is not None and node.on_error != Fail():
        yield Fault(
            "B5", f"{spec.name}.{node.name}.on_error", "Fail(), since a step half taken cannot go on without an item",
            f"{type(node.on_error).__name__}(...)", node.where, "leave it out; catch what may be skipped inside the collector",
        )  # fmt: skip


def capacities(spec: Spec) -> Iterator[Fault]:
    """Numbers that are right alone and cannot work together. The graph is sound otherwise."""
    held = tickets(spec)
    for edge in spec.edges:
        items, source = edge.capacity.items, spec.nodes[edge.source]
        if items is not None and 0 < items < source.size:
            yield Fault(
                "B5", f"{spec.name}.{edge.name}", f"room for a whole group of {source.size}", f"capacity {items}", edge.where,
                f"raise the capacity to {source.size}, or lower n of '{source.name}'",
            )  # fmt: skip
        if items is not None and 0 < items < held.get(edge.target, 0):
            yield Fault(
                "B5", f"{spec.name}.{edge.name}",
                f"room for {held[edge.target]} items, as many as may be in flight: the one that must go next could stand "
                "behind a full edge for ever",
                f"capacity {items}", edge.where,
                f"raise the capacity to {held[edge.target]}, or lower max_lag, depth or the step",
            )  # fmt: skip
        if edge.capacity.cost is not None and edge.target in held:
            yield Fault(
                "B5", f"{spec.name}.{edge.name}", "a bound in items only, before a sink that chooses by age: what must go next "
                "could be too heavy for the edge for ever", f"cost {edge.capacity.cost:g}", edge.where,
                "leave the cost out: tickets bound what may wait there",
            )  # fmt: skip
    for node in spec.nodes.values():
        opener = spec.opener(node.name) if node.kind == "group" else None
        size = 0 if opener is None else spec.nodes[opener].size
        if isinstance(node.missing, Shrink) and opener is not None and node.missing.min_members > size:
            yield Fault(
                "B5", f"{spec.name}.{node.name}.missing.min_members", f"at most {size}, the size of a group of '{opener}'",
                f"{node.missing.min_members}", node.where, "lower it, or raise n: no group could ever be handed on",
            )  # fmt: skip
