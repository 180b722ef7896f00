"""What ``build`` proves about numbers: each setting by itself, and that capacities, pools and tickets are feasible together."""

from collections.abc import Iterator

from ._errors import Fault
from ._policy import Drop, Emit, Retry, Shrink
from ._spec import NodeSpec, Spec


def tickets(spec: Spec) -> dict[str, int]:
    """Tickets that govern each sink with freshness, by the sink's name."""
    found: dict[str, int] = {}
    for feedback in spec.feedback:
        node = spec.nodes.get(feedback.source)
        if feedback.freshness is not None and node is not None and node.collect is not None:
            found[feedback.source] = (feedback.freshness.max_lag + 1) * node.collect.items
    return found


def settings(spec: Spec) -> Iterator[Fault]:
    """Settings that are wrong whatever stands beside them."""
    for pool, units in spec.pools.items():
        yield from _least(f"{spec.name}.pools.{pool}", units, 1, "")
    for node in spec.nodes.values():
        yield from _numbers(spec, node)
        yield from _policies(spec, node)
        yield from _pools(spec, node)
    for edge in spec.edges:
        yield from _least(f"{spec.name}.{edge.name}.capacity", edge.capacity.items, 1, edge.where)
    for feedback in spec.feedback:
        if feedback.freshness is not None:
            path = f"{spec.name}.{feedback.source}->{feedback.cell}.max_lag"
            yield from _least(path, feedback.freshness.max_lag, 0, feedback.where)


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
        yield Fault("B5", f"{path}.deadline_s", "a time above 0", f"{node.deadline_s}", node.where, "raise it, or None")
    alone = node.kind in ("source", "repeat", "group") or node.collect is not None
    if alone and node.workers > 1:
        kind = "collecting sink" if node.collect is not None else node.kind
        yield Fault(
            "B5",
            f"{path}.workers",
            f"1, since a {kind} does one thing at a time",
            f"{node.workers}",
            node.where,
            "leave it out",
        )


def _policies(spec: Spec, node: NodeSpec) -> Iterator[Fault]:
    path = f"{spec.name}.{node.name}"
    final = node.on_error
    if isinstance(final, Retry):
        yield from _least(f"{path}.on_error.times", final.times, 0, node.where)
        final = final.then
    if isinstance(final, str | Retry):
        yield Fault(
            "B5", f"{path}.on_error.then", "Fail(), Drop() or Emit(...)", f"{final!r}", node.where,
            "'drop' and 'shrink' are for groups; a stage takes Drop()",
        )  # fmt: skip
    if isinstance(final, Drop | Emit):
        yield from _least(f"{path}.on_error.most", final.most, 0, node.where)
        yield from _least(f"{path}.on_error.of", final.of, 1, node.where)
    if node.budget is not None:
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


def _pools(spec: Spec, node: NodeSpec) -> Iterator[Fault]:
    for pool, units in node.needs.items():
        have = spec.pools.get(pool)
        if have is None or have < units:
            got = f"no pool '{pool}'" if have is None else f"a pool of {have}"
            yield Fault(
                "B5", f"{spec.name}.{node.name}.needs", f"a pool '{pool}' of at least {units} units", got, node.where,
                f"declare it: Graph(..., pools={{'{pool}': {units}}})",
            )  # fmt: skip
        yield from _least(f"{spec.name}.{node.name}.needs.{pool}", units, 1, node.where)


def capacities(spec: Spec) -> Iterator[Fault]:
    """Numbers that are right alone and cannot work together. The graph is sound otherwise."""
    held = tickets(spec)
    for edge in spec.edges:
        items, source = edge.capacity.items, spec.nodes[edge.source]
        if items is not None and items < source.size:
            yield Fault(
                "B5", f"{spec.name}.{edge.name}", f"room for a whole group of {source.size}", f"capacity {items}", edge.where,
                f"raise the capacity to {source.size}, or lower n of '{source.name}'",
            )  # fmt: skip
        if items is not None and items < held.get(edge.target, 0):
            yield Fault(
                "B5", f"{spec.name}.{edge.name}",
                f"room for {held[edge.target]} items, as many as may be in flight: the one that must go next could stand "
                "behind a full edge for ever",
                f"capacity {items}", edge.where, f"raise the capacity to {held[edge.target]}, or lower max_lag or the step",
            )  # fmt: skip
    for node in spec.nodes.values():
        opener = spec.opener(node.name) if node.kind == "group" else None
        size = 0 if opener is None else spec.nodes[opener].size
        if isinstance(node.missing, Shrink) and opener is not None and node.missing.min_members > size:
            yield Fault(
                "B5", f"{spec.name}.{node.name}.missing.min_members", f"at most {size}, the size of a group of '{opener}'",
                f"{node.missing.min_members}", node.where, "lower it, or raise n: no group could ever be handed on",
            )  # fmt: skip
