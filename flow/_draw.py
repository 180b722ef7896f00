"""Pictures of a graph: the text one. Works on any spec, also one that cannot be built."""

from ._limits import Threads
from ._policy import Missing, Retry, Shrink
from ._spec import NodeSpec, Spec
from ._types import type_name, untyped


def draw(spec: Spec) -> str:
    """Draw a graph from its sources down, one node a line, with the type and bound of each edge between."""
    lines = [f"graph {spec.name}"]
    if spec.pools:
        lines.append("  pools  " + ", ".join(f"{name} {units}" for name, units in spec.pools.items()))
    drawn: set[str] = set()
    starts = [name for name in spec.nodes if not spec.before(name)] or list(spec.nodes)[:1]
    for start in starts:
        _line(spec, start, drawn, lines)
    lines.extend(f"  [{name}]  (not connected to a source)" for name in spec.nodes if name not in drawn)
    return "\n".join(lines)


def _line(spec: Spec, name: str, drawn: set[str], lines: list[str]) -> None:
    while name in spec.nodes and name not in drawn:
        drawn.add(name)
        node = spec.nodes[name]
        lines.append(f"  [{name}]  {_settings(spec, node)}".rstrip())
        edges = spec.after(name)
        for feedback in spec.feedback:
            if feedback.source == name:
                lines.append(_feedback(spec, feedback.cell, name))
        if not edges:
            return
        edge = edges[0]
        gives = "" if untyped(node.gives) else type_name(node.gives)
        bound = "" if edge.capacity.items is None and edge.capacity.cost is None else f"  at most {edge.capacity}"
        lines.append(f"     |  {gives}{bound}".rstrip())
        name = edge.target


def _feedback(spec: Spec, cell: str, source: str) -> str:
    readers = [node.name for node in spec.nodes.values() if node.reads == cell]
    freshness = next((f.freshness for f in spec.feedback if f.source == source and f.cell == cell), None)
    bound = f", max_lag={freshness.max_lag}" if freshness else ""
    kind = type_name(spec.cells[cell].type) if cell in spec.cells else "?"
    return f"     ^  ({cell}: {kind}{bound}) back to {', '.join(readers) or 'nobody'}"


def _missing(missing: Missing) -> str:
    if isinstance(missing, Retry):
        return f"retry {missing.times}, then {missing.then}"
    return f"shrink to {missing.min_members}" if isinstance(missing, Shrink) else missing


def _settings(spec: Spec, node: NodeSpec) -> str:
    parts = [node.kind]
    if node.stage is not None:
        parts.append(getattr(node.stage, "__name__", type(node.stage).__name__))
    if node.workers > 1:
        parts.append(f"{node.workers} workers")
    if node.kind == "repeat":
        parts.append(f"x {node.size}")
    if node.kind == "group":
        parts.append(f"missing: {_missing(node.missing)}")
    if node.collect is not None:
        steps = "" if node.collect.steps is None else f", {node.collect.steps} steps"
        parts.append(f"{node.collect.items} a step{steps}")
    if node.order == "input":
        parts.append("in order")
    if node.needs:
        parts.append("needs " + ", ".join(f"{units} {pool}" for pool, units in node.needs.items()))
    if node.reads:
        parts.append(f"reads {node.reads}")
    if node.deadline_s is not None:
        parts.append(f"deadline {node.deadline_s:g} s")
    if isinstance(node.placement, Threads):
        parts.append("own thread")
    return ", ".join(parts)
