"""The ledger of a running graph: whether the counts of its nodes and edges add up, and what is in no terminal state."""

from collections.abc import Mapping

from .node import NodeState
from .pools import Pools


def faults(nodes: Mapping[str, NodeState], pools: Pools) -> list[str]:
    """Counts that do not add up, as text; empty when the ledger balances."""
    found: list[str] = []
    for name, node in nodes.items():
        taken, leased = sum(edge.taken for edge in node.inputs), sum(edge.leased for edge in node.inputs)
        ended = node.meter.finished + node.meter.dropped.total() - _group_drops(node)
        if node.inputs and taken != ended + leased:
            found.append(f"{name}: took {taken}, but {ended} ended and {leased} are out")
        found += [
            f"{edge.name}: {edge.put_count} put, {edge.taken} taken and {len(edge)} waiting"
            for edge in node.inputs
            if edge.put_count != edge.taken + len(edge)
        ]
        if node.admission is not None and node.admission.held > node.admission.capacity:
            found.append(f"{name}: {node.admission.held} of {node.admission.capacity} tickets are out")
    for pool, size in pools.sizes.items():
        if pools.free[pool] > size:
            found.append(f"pool {pool}: {pools.free[pool]} of {size} units are free")
    return found


def leftovers(nodes: Mapping[str, NodeState]) -> Mapping[str, int]:
    """Items that are in no terminal state, by place; empty when a run is complete."""
    places: dict[str, int] = {}
    for name, node in nodes.items():
        for edge in node.inputs:
            places[edge.name] = len(edge)
            places[f"{name} (leased)"] = places.get(f"{name} (leased)", 0) + edge.leased
        if node.spec.kind == "group" and node.groups is not None:
            places[f"{name} (open groups)"] = len(node.groups.open)
            places[f"{name} (waiting for room)"] = len(node.ready)
    return {place: count for place, count in places.items() if count}


def _group_drops(node: NodeState) -> int:
    # A barrier counts dropped groups among its drops; they are no inputs of its own.
    return node.meter.dropped.total() if node.spec.kind == "group" else 0
