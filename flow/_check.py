"""What ``build`` proves. Each function below checks one rule and yields its faults; none stops at the first."""

import difflib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from ._check_calls import calls
from ._check_values import capacities, settings, tickets
from ._errors import BuildError, Fault
from ._limits import Capacity, Threads
from ._plan import Plan
from ._spec import CellSpec, EdgeSpec, FeedbackSpec, NodeSpec, Spec
from ._types import UNTYPED, assignable, hints_of, type_name, untyped


def check(spec: Spec, twice: Sequence[NodeSpec | CellSpec]) -> Plan:
    """Prove a graph.

    Raises:
        BuildError: with every fault, root causes first: names, ports, cycles, calls, types, pairs, cells, settings,
            capacities. What follows the edges of the graph is looked at only where these are sound, since the rest would be
            echoes.
    """
    shape = [*_names(spec, twice), *_ports(spec), *_cycles(spec)]
    faults = [*shape, *calls(spec), *_types(spec)]
    if not shape:
        faults += [*_pairs(spec), *_cells(spec)]
    faults += settings(spec)
    if not faults:
        faults += capacities(spec)
    if faults:
        raise BuildError(spec.name, faults)
    edges = {edge.name: resolve(spec, edge) for edge in spec.edges}
    return Plan(spec, edges, tuple(_warnings(spec)))


def resolve(spec: Spec, edge: EdgeSpec) -> Capacity:
    """Fill in what the user left open: twice the workers of the target, a whole group, or every ticket."""
    if edge.capacity.items is not None:
        return edge.capacity
    source, target = spec.nodes[edge.source], spec.nodes[edge.target]
    items = max(2 * target.workers, source.size, tickets(spec).get(edge.target, 0))
    return Capacity(items, edge.capacity.cost, edge.capacity.measure)


def _names(spec: Spec, twice: Sequence[NodeSpec | CellSpec]) -> Iterator[Fault]:
    for again in twice:
        first, kind = (spec.nodes[again.name], "node") if isinstance(again, NodeSpec) else (spec.cells[again.name], "cell")
        yield Fault(
            "B3", f"{spec.name}.{again.name}", "a name that is used once", f"the name of the {kind} at {first.where}",
            again.where, "rename one of the two",
        )  # fmt: skip
    for edge in spec.edges:
        yield from _unknown(spec, edge.source, "node", edge.where)
        yield from _unknown(spec, edge.target, "node", edge.where)
    for feedback in spec.feedback:
        yield from _unknown(spec, feedback.source, "node", feedback.where)
        yield from _unknown(spec, feedback.cell, "cell", feedback.where)


def _unknown(spec: Spec, name: str, kind: str, where: str) -> Iterator[Fault]:
    known = spec.nodes if kind == "node" else spec.cells
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean '{near[0]}'?" if near else "use handles of this graph"
        yield Fault("B1", f"{spec.name}.{name}", f"a {kind} of this graph", f"no {kind} '{name}'", where, hint)


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
        source, target = spec.nodes.get(edge.source), spec.nodes.get(edge.target)
        if source is not None and target is not None and not assignable(source.gives, target.takes):
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
            yield from _initial(spec, feedback, cell)


def _initial(spec: Spec, feedback: FeedbackSpec, cell: CellSpec) -> Iterator[Fault]:
    first: Any = feedback.initial
    made: Any = hints_of(cast("Callable[..., Any]", first))[1] if callable(first) else UNTYPED
    given: Any = made if callable(first) else cast("Any", type(first))
    if first is not None and not assignable(given, cell.type):
        yield Fault(
            "B2", f"{spec.name}.{feedback.source}->{feedback.cell}.initial",
            f"{type_name(cell.type)}, which cell '{cell.name}' holds ({cell.where})", type_name(given), feedback.where,
            "pass a value of the cell's type, or a function that makes one",
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
        outer = spec.opener(node.name) if node.kind == "repeat" else None
        if outer is not None and spec.behind_group(node.name) is False:
            yield Fault(
                "B5", f"{spec.name}.{node.name}", f"the groups of '{outer}' gathered before they are repeated again",
                f"a repeat between '{outer}' and its group", node.where,
                f"put graph.group(...) before it, or make {node.size} times as many members in '{outer}'",
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
        first = next(other for other in spec.feedback if other.cell == feedback.cell)
        if first is not feedback:
            yield Fault(
                "B4", path, "one sink that writes the cell", f"'{first.source}', which writes it too ({first.where})",
                feedback.where, "give each sink a cell of its own",
            )  # fmt: skip
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
        elif feedback.freshness is not None:
            yield from _unbounded(spec, feedback, path)


def _unbounded(spec: Spec, feedback: FeedbackSpec, path: str) -> Iterator[Fault]:
    """Who reads the cell on the sink's line before tickets are taken makes items whose age nothing bounds."""
    name = spec.opener(feedback.source)
    while name is not None and (before := spec.before(name)):
        name = before[0].source
        if spec.nodes[name].reads == feedback.cell:
            yield Fault(
                "F3", path, "items that read the cell after their ticket is taken",
                f"'{name}', which reads it before the repeat", spec.nodes[name].where,
                "move it behind the repeat, or leave freshness out",
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
        if isinstance(node.placement, Threads) and (node.kind in ("repeat", "group") or _asynchronous(node)):
            yield f"{spec.name}.{node.name} ({node.where}): its placement has no effect on what runs on the loop anyway"


def _asynchronous(node: NodeSpec) -> bool:
    work = node.stage if node.collect is None else node.stage.add
    return inspect.iscoroutinefunction(work) or inspect.iscoroutinefunction(getattr(work, "__call__", None))  # noqa: B004
