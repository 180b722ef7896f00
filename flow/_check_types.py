"""What ``build`` proves about types (B2): what a node gives fits what the next one takes, and so for cells and keys."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from ._context import Context
from ._errors import Fault
from ._spec import CellSpec, EdgeSpec, FeedbackSpec, NodeSpec, Spec
from ._types import UNTYPED, assignable, hints_of, literals, type_name


def types(spec: Spec) -> Iterator[Fault]:
    """Rule B2, for edges, feedback, initial values and the functions that give keys."""
    for edge in spec.edges:
        if edge.source in spec.nodes and edge.target in spec.nodes:
            yield from _edge(spec, edge)
    for feedback in spec.feedback:
        if feedback.source in spec.nodes and feedback.cell in spec.cells:
            yield from _written(spec, feedback, spec.nodes[feedback.source], spec.cells[feedback.cell])
            yield from _initial(spec, feedback, spec.cells[feedback.cell])
    for node in spec.nodes.values():
        yield from _keyed(spec, node, "key", node.key)
        yield from _keyed(spec, node, "by", node.by)
        yield from _unrouted(spec, node)


def _edge(spec: Spec, edge: EdgeSpec) -> Iterator[Fault]:
    source, target = spec.nodes[edge.source], spec.nodes[edge.target]
    # A context where the value should stand is told as the swap that it is.
    if target.takes is not Context and not assignable(source.gives, target.takes):
        yield Fault(
            "B2", f"{spec.name}.{edge.name}",
            f"{type_name(target.takes)}, which '{target.name}' takes ({target.where})",
            f"{type_name(source.gives)}, which '{source.name}' gives ({source.where})",
            edge.where, _remedy(spec, source, target),
        )  # fmt: skip


def _remedy(spec: Spec, source: NodeSpec, target: NodeSpec) -> str:
    wanted, given = type_name(target.takes), type_name(source.gives)
    if wanted.startswith("Gathered[") and not given.startswith("Gathered["):
        return f"put a group between them: {source.name} >> graph.group(...) >> {target.name}"
    if source.kind == "merge":
        before = [spec.nodes[edge.source] for edge in spec.inputs(source.name) if edge.source in spec.nodes]
        wrong = [node for node in before if not assignable(node.gives, target.takes)]
        if wrong:
            names = ", ".join(f"'{node.name}' ({type_name(node.gives)})" for node in wrong)
            return f"put a stage that makes {wanted} behind {names}, before the merge, or change '{target.name}'"
    return f"put a stage between them that makes {wanted} of {given}, or change one of the two"


def _written(spec: Spec, feedback: FeedbackSpec, source: NodeSpec, cell: CellSpec) -> Iterator[Fault]:
    if not assignable(source.gives, cell.type):
        yield Fault(
            "B2", f"{spec.name}.{source.name}->{cell.name}",
            f"{type_name(cell.type)}, which cell '{cell.name}' holds ({cell.where})",
            f"{type_name(source.gives)}, which '{source.name}' gives ({source.where})",
            feedback.where, "give the cell the type of the sink's result, or change the result",
        )  # fmt: skip


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


def _keyed(spec: Spec, node: NodeSpec, setting: str, function: Callable[[Any], Any] | None) -> Iterator[Fault]:
    takes = UNTYPED if function is None else hints_of(function)[0]
    if not assignable(node.takes, takes):
        yield Fault(
            "B2", f"{spec.name}.{node.name}.{setting}", f"a function of {type_name(node.takes)}, which '{node.name}' takes",
            f"a function of {type_name(takes)}", node.where, "give it the type of the items",
        )  # fmt: skip


def _unrouted(spec: Spec, node: NodeSpec) -> Iterator[Fault]:
    """Keys that ``by`` says it may give and that have no branch: their items would fail."""
    missing = [key for key in literals(UNTYPED if node.by is None else hints_of(node.by)[1]) if key not in node.branches]
    if missing:
        yield Fault(
            "B2", f"{spec.name}.{node.name}.to", f"a branch for {_listed(missing)} too, which 'by' may give",
            f"branches for {_listed(node.branches)}", node.where,
            "add it to 'to', or take it out of the hint of 'by'",
        )  # fmt: skip


def _listed(keys: Iterable[Any]) -> str:
    return ", ".join(map(repr, keys)) or "none"
