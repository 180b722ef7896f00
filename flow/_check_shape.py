"""What ``build`` proves about the shape of a graph: names (B3), ports (B1), cycles (B4)."""

import difflib
from collections.abc import Iterator, Mapping, Sequence

from ._errors import Fault
from ._spec import BEGINNINGS, CellSpec, EdgeSpec, Kind, NodeSpec, Spec

_PORTS: Mapping[Kind, tuple[str, str]] = {
    "source": ("no", "one"), "versions": ("no", "one"), "stage": ("one", "one"), "repeat": ("one", "one"),
    "group": ("one", "one"), "broadcast": ("one", "two"), "balance": ("one", "two"), "route": ("one", "some"),
    "merge": ("two", "one"), "sink": ("one", "no"),
}  # fmt: skip
"""How many edges lead to a node of each kind, and how many leave it."""

_COUNTS: Mapping[str, tuple[str, int, float]] = {
    "no": ("no edge", 0, 0), "one": ("one edge", 1, 1), "two": ("at least two edges", 2, float("inf")),
    "some": ("at least one edge", 1, float("inf")),
}  # fmt: skip
"""In words, at least, at most."""


def shape(spec: Spec, twice: Sequence[NodeSpec | CellSpec]) -> Iterator[Fault]:
    """Faults that make every look along the edges idle."""
    yield from _names(spec, twice)
    yield from _ports(spec)
    yield from _keys(spec)
    yield from _cycles(spec)


def _names(spec: Spec, twice: Sequence[NodeSpec | CellSpec]) -> Iterator[Fault]:
    for again in twice:
        first, kind = (spec.nodes[again.name], "node") if isinstance(again, NodeSpec) else (spec.cells[again.name], "cell")
        yield Fault(
            "B3", f"{spec.name}.{again.name}", "a name that is used once", f"the name of the {kind} at {first.where}",
            again.where, "rename one of the two",
        )  # fmt: skip
    for name in spec.rates:
        if name in spec.pools:
            yield Fault(
                "B3", f"{spec.name}.rates.{name}", "a name that is used once, since 'needs' names pools and rates alike",
                f"the name of a pool too (size {spec.pools[name]})", spec.where, "rename one of the two",
            )  # fmt: skip
    for edge in spec.edges:
        for name in (edge.source, edge.target):
            yield from _stray(spec, edge, name) if name in dict(edge.strays) else _unknown(spec, name, "node", edge.where)
    for feedback in spec.feedback:
        yield from _unknown(spec, feedback.source, "node", feedback.where)
        yield from _unknown(spec, feedback.cell, "cell", feedback.where)


def _unknown(spec: Spec, name: str, kind: str, where: str) -> Iterator[Fault]:
    known = spec.nodes if kind == "node" else spec.cells
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean '{near[0]}'?" if near else "use handles of this graph"
        yield Fault("B1", f"{spec.name}.{name}", f"a {kind} of this graph", f"no {kind} '{name}'", where, hint)


def _stray(spec: Spec, edge: EdgeSpec, name: str) -> Iterator[Fault]:
    near = [] if name in spec.nodes else difflib.get_close_matches(name, spec.nodes, 1)
    hint = f"did you mean '{near[0]}'?" if near else "use the handle that this graph gave, or declare the node here"
    yield Fault(
        "B1", f"{spec.name}.{edge.name}", "nodes of this graph", f"'{name}' of another graph, '{dict(edge.strays)[name]}'",
        edge.where, hint,
    )  # fmt: skip


def _ports(spec: Spec) -> Iterator[Fault]:
    if not spec.nodes:
        yield Fault(
            "B1", spec.name, "at least a source and a sink", "no node", spec.where, "declare nodes and connect them with >>"
        )
    for node in spec.nodes.values():
        wants_input, wants_output = _PORTS[node.kind]
        yield from _port(spec, node, "in", wants_input, spec.inputs(node.name))
        yield from _port(spec, node, "out", wants_output, spec.outputs(node.name))


def _port(spec: Spec, node: NodeSpec, side: str, wanted: str, edges: Sequence[EdgeSpec]) -> Iterator[Fault]:
    expected, least, most = _COUNTS[wanted]
    if not least <= len(edges) <= most:
        yield Fault(
            "B1", f"{spec.name}.{node.name}.{side}", expected, _edges(len(edges)), node.where,
            _port_remedy(node, side, len(edges)),
        )  # fmt: skip


def _edges(count: int) -> str:
    return "1 edge" if count == 1 else f"{count or 'no'} edges"


def _port_remedy(node: NodeSpec, side: str, count: int) -> str:
    if node.kind in (*BEGINNINGS, "sink") and count and (node.kind in BEGINNINGS) == (side == "in"):
        return f"a {node.kind} has no {side}put: leave the edge out, or declare a stage"
    if (node.kind, side) == ("merge", "in"):
        return "name the nodes before it: graph.merge(name, (first, second))"
    if (node.kind, side) == ("route", "out"):
        return "name the node behind each key: to={key: node}"
    if count == 0:
        return "connect it: upstream >> this node" if side == "in" else "connect it: this node >> downstream"
    if count == 1:
        return "connect another branch: this node >> downstream; or leave the node out"
    if side == "in":
        return "one writer an edge: graph.merge(...) joins several"
    return "one reader an edge: graph.broadcast(...) gives each item to all, graph.balance(...) and graph.route(...) to one"


def _keys(spec: Spec) -> Iterator[Fault]:
    """Edges of a route that no key leads to, and weights of a merge that weigh no input."""
    for node in spec.nodes.values():
        for edge in spec.outputs(node.name) if node.kind == "route" else ():
            if edge.target not in node.branches.values():
                yield Fault(
                    "B1", f"{spec.name}.{edge.name}", f"a branch named in 'to' of '{node.name}' ({node.where})",
                    f"no key of '{edge.target}'", edge.where, "name it there: to={key: node}; the edge comes with it",
                )  # fmt: skip
        inputs = [edge.source for edge in spec.inputs(node.name)]
        for name in node.weights if node.kind == "merge" else ():
            if name not in inputs:
                near = difflib.get_close_matches(name, inputs, 1)
                yield Fault(
                    "B1", f"{spec.name}.{node.name}.weights", f"the name of an input ({', '.join(inputs) or 'it has none'})",
                    f"'{name}'", node.where, f"did you mean '{near[0]}'?" if near else "leave it out, or merge that node too",
                )  # fmt: skip


def _cycles(spec: Spec) -> Iterator[Fault]:
    """A fault for each edge that leads back to a node on the way to it: every cycle has such an edge."""
    done: set[str] = set()
    for start in spec.nodes:
        way: list[str] = []
        rest: list[EdgeSpec | str] = [start]
        while rest:
            step = rest.pop()
            name = step if isinstance(step, str) else step.target
            if isinstance(step, EdgeSpec):
                # Edges of a node lie on the stack above it, so what is on the way beyond their source is left behind.
                del way[way.index(step.source) + 1 :]
                if name in way:
                    yield _cycle(spec, [*way[way.index(name) :], name], step)
            if name in done or name not in spec.nodes:
                continue
            done.add(name)
            way.append(name)
            rest.extend(reversed(spec.outputs(name)))


def _cycle(spec: Spec, loop: Sequence[str], back: EdgeSpec) -> Fault:
    return Fault(
        "B4", f"{spec.name}.{loop[0]}", "no cycle of queue edges: it fills up and stops", " >> ".join(loop), back.where,
        "lead the way back through graph.latest and graph.feedback",
    )  # fmt: skip
