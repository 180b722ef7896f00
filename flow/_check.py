"""What ``build`` proves. Each function below checks one rule and yields its faults; none stops at the first."""

import difflib
from collections.abc import Iterator, Sequence

from ._errors import BuildError, Fault
from ._limits import Capacity, Threads
from ._plan import Plan
from ._spec import EdgeSpec, NodeSpec, Spec
from ._types import assignable, type_name, untyped


def check(spec: Spec, twice: Sequence[NodeSpec]) -> Plan:
    """Prove a graph.

    Raises:
        BuildError: with every fault, root causes first: names, ports, cycles, types, then feasibility.
    """
    faults = [*_names(spec, twice), *_ports(spec), *_cycles(spec)]
    if not faults:
        faults = [*_types(spec), *_pairs(spec), *_cells(spec), *_settings(spec)]
    if not faults:
        faults = list(_feasible(spec))
    if faults:
        raise BuildError(spec.name, faults)
    edges = {edge.name: resolve(spec, edge) for edge in spec.edges}
    return Plan(spec, edges, tuple(_warnings(spec)))


def tickets(spec: Spec) -> dict[str, int]:
    """Tickets that govern each sink with freshness, by the sink's name."""
    found: dict[str, int] = {}
    for feedback in spec.feedback:
        collect = spec.nodes[feedback.source].collect
        if feedback.freshness is not None and collect is not None:
            found[feedback.source] = (feedback.freshness.max_lag + 1) * collect.items
    return found


def resolve(spec: Spec, edge: EdgeSpec) -> Capacity:
    """Fill in what the user left open: twice the workers of the target, a whole group, or every ticket."""
    if edge.capacity.items is not None:
        return edge.capacity
    source, target = spec.nodes[edge.source], spec.nodes[edge.target]
    items = max(2 * target.workers, source.size, tickets(spec).get(edge.target, 0))
    return Capacity(items, edge.capacity.cost, edge.capacity.measure)


def _names(spec: Spec, twice: Sequence[NodeSpec]) -> Iterator[Fault]:
    for node in twice:
        first = spec.nodes[node.name]
        yield Fault(
            "B3", f"{spec.name}.{node.name}", "a name that is used once", f"the name of the node at {first.where}",
            node.where, "rename one of the two",
        )  # fmt: skip
    for edge in spec.edges:
        for name in (edge.source, edge.target):
            if name not in spec.nodes:
                near = difflib.get_close_matches(name, spec.nodes, 1)
                hint = f"did you mean '{near[0]}'?" if near else "use handles of this graph"
                yield Fault("B1", f"{spec.name}.{name}", "a node of this graph", f"no node '{name}'", edge.where, hint)


def _ports(spec: Spec) -> Iterator[Fault]:
    if not spec.nodes:
        yield Fault("B1", spec.name, "at least a source and a sink", "no node", "", "declare nodes and connect them with >>")
    for node in spec.nodes.values():
        path = f"{spec.name}.{node.name}"
        fed, read = len(spec.before(node.name)), len(spec.after(node.name))
        wants_input, wants_output = node.kind != "source", node.kind != "sink"
        if fed != int(wants_input):
            remedy = "connect it: upstream >> this node" if fed == 0 else "one writer an edge: merge the two first"
            yield Fault("B1", f"{path}.in", "one edge" if wants_input else "no edge", _edges(fed), node.where, remedy)
        if read != int(wants_output):
            remedy = "connect it: this node >> downstream" if read == 0 else "one reader an edge: broadcast or balance first"
            yield Fault("B1", f"{path}.out", "one edge" if wants_output else "no edge", _edges(read), node.where, remedy)


def _edges(count: int) -> str:
    return "1 edge" if count == 1 else f"{count or 'no'} edges"


def _cycles(spec: Spec) -> Iterator[Fault]:
    following = {edge.source: edge for edge in spec.edges}
    seen: set[str] = set()
    for start in spec.nodes:
        path: list[str] = []
        name: str | None = start
        while name is not None and name not in seen:
            seen.add(name)
            path.append(name)
            edge = following.get(name)
            name = edge.target if edge else None
        if name in path:
            loop = [*path[path.index(name) :], name]
            yield Fault(
                "B4", f"{spec.name}.{name}", "no cycle of queue edges: it fills up and stops", " >> ".join(loop),
                following[path[-1]].where, "lead the way back through graph.latest and graph.feedback",
            )  # fmt: skip


def _types(spec: Spec) -> Iterator[Fault]:
    for edge in spec.edges:
        source, target = spec.nodes[edge.source], spec.nodes[edge.target]
        if not assignable(source.gives, target.takes):
            yield Fault(
                "B2", f"{spec.name}.{edge.name}",
                f"{type_name(target.takes)}, which '{target.name}' takes ({target.where})",
                f"{type_name(source.gives)}, which '{source.name}' gives ({source.where})",
                edge.where, _type_remedy(source, target),
            )  # fmt: skip
    for feedback in spec.feedback:
        if feedback.source in spec.nodes and feedback.cell in spec.cells:
            source, cell = spec.nodes[feedback.source], spec.cells[feedback.cell]
            if not assignable(source.gives, cell.type):
                yield Fault(
                    "B2", f"{spec.name}.{feedback.source}->{feedback.cell}",
                    f"{type_name(cell.type)}, which cell '{cell.name}' holds ({cell.where})",
                    f"{type_name(source.gives)}, which '{source.name}' gives ({source.where})",
                    feedback.where, "give the cell the type of the sink's result, or change the result",
                )  # fmt: skip


def _type_remedy(source: NodeSpec, target: NodeSpec) -> str:
    gathered = type_name(target.takes).startswith("Gathered[")
    if gathered and not type_name(source.gives).startswith("Gathered["):
        return f"put a group between them: {source.name} >> graph.group(...) >> {target.name}"
    return (
        f"put a stage between them that makes {type_name(target.takes)} of {type_name(source.gives)}, or change one of the two"
    )


def _pairs(spec: Spec) -> Iterator[Fault]:
    for node in spec.nodes.values():
        if node.kind == "group" and spec.opener(node.name) is None:
            yield Fault(
                "B5", f"{spec.name}.{node.name}", "a repeat somewhere before it, which opens the groups", "none", node.where,
                "put graph.repeat(...) before the node whose outputs it gathers",
            )  # fmt: skip
        if node.kind == "repeat" and not any(
            other.kind == "group" and spec.opener(other.name) == node.name for other in spec.nodes.values()
        ):
            yield Fault(
                "B5", f"{spec.name}.{node.name}", "a group after it, which closes the groups", "none", node.where,
                "put graph.group(...) after the node that handles the members",
            )  # fmt: skip


def _cells(spec: Spec) -> Iterator[Fault]:
    written = {feedback.cell for feedback in spec.feedback}
    for node in spec.nodes.values():
        if node.reads is not None and node.reads not in spec.cells:
            yield Fault(
                "B1", f"{spec.name}.{node.name}.reads", "a cell of this graph", f"'{node.reads}'", node.where,
                "declare it with graph.latest",
            )  # fmt: skip
        elif node.reads is not None and node.reads not in written:
            yield Fault(
                "B4", f"{spec.name}.{node.reads}", "a feedback edge that writes the cell", f"none, and '{node.name}' reads it",
                spec.cells[node.reads].where, "add graph.feedback(sink, cell, initial=...)",
            )  # fmt: skip
    for feedback in spec.feedback:
        path = f"{spec.name}.{feedback.source}->{feedback.cell}"
        if spec.nodes[feedback.source].collect is None:
            yield Fault(
                "B4", path, "a sink that collects", f"'{feedback.source}', which does not", feedback.where,
                "declare the sink with collect=Collect(items)",
            )  # fmt: skip
        if feedback.initial is None and any(node.reads == feedback.cell for node in spec.nodes.values()):
            yield Fault(
                "B4", path, "an initial value, since the cell is read before the sink first writes it", "none", feedback.where,
                "pass initial=, a value or a function that makes it",
            )  # fmt: skip
        if feedback.freshness is not None and spec.opener(feedback.source) is None:
            yield Fault(
                "F3", path, "a repeat before the sink, where tickets are taken", "none", feedback.where,
                "put graph.repeat(..., n=1) and a group before the sink, or leave freshness out",
            )  # fmt: skip


def _settings(spec: Spec) -> Iterator[Fault]:
    for node in spec.nodes.values():
        path = f"{spec.name}.{node.name}"
        for field, value, least in (("workers", node.workers, 1), ("n", node.size, 1)):
            if value < least:
                yield Fault("B5", f"{path}.{field}", f"at least {least}", str(value), node.where, "raise it")
        if node.collect is not None and node.collect.items < 1:
            yield Fault("B5", f"{path}.collect", "at least 1 item a step", str(node.collect.items), node.where, "raise it")
        if node.deadline_s is not None and node.deadline_s <= 0:
            yield Fault("B5", f"{path}.deadline_s", "a time above 0", f"{node.deadline_s}", node.where, "raise it, or None")


def _feasible(spec: Spec) -> Iterator[Fault]:
    for node in spec.nodes.values():
        for pool, units in node.needs.items():
            have = spec.pools.get(pool)
            if have is None or have < units:
                got = f"no pool '{pool}'" if have is None else f"a pool of {have}"
                yield Fault(
                    "B5", f"{spec.name}.{node.name}.needs", f"a pool '{pool}' of at least {units} units", got, node.where,
                    f"declare it: Graph(..., pools={{'{pool}': {units}}})",
                )  # fmt: skip
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


def _warnings(spec: Spec) -> Iterator[str]:
    held = tickets(spec)
    for sink, count in held.items():
        repeat = spec.opener(sink)
        if repeat is None:
            continue
        most = count * spec.nodes[repeat].size
        for node in spec.nodes.values():
            if node.kind == "stage" and spec.opener(node.name) == repeat and node.workers > most:
                yield (
                    f"{spec.name}.{node.name} ({node.where}): {node.workers} workers, but at most {most} items can be in "
                    f"flight ({count} tickets of {spec.nodes[repeat].size}); the rest is never busy"
                )
    for edge in spec.edges:
        if untyped(spec.nodes[edge.source].gives) or untyped(spec.nodes[edge.target].takes):
            yield f"{spec.name}.{edge.name} ({edge.where}): an untyped edge; annotate the stages to have it checked"
    for node in spec.nodes.values():
        if isinstance(node.placement, Threads) and node.kind in ("repeat", "group"):
            yield f"{spec.name}.{node.name} ({node.where}): its placement has no effect"
