"""What ``build`` proves about cells: one that is read is written, and has a first value (B4); ages are bounded (F3)."""

from collections.abc import Iterator

from ._errors import Fault
from ._spec import FeedbackSpec, NodeSpec, Spec


def cells(spec: Spec) -> Iterator[Fault]:
    """Rules B4 and F3 for readers and feedback edges. The graph's shape is sound."""
    for node in spec.nodes.values():
        if node.reads is not None:
            yield from _read(spec, node, node.reads)
        elif node.kind == "versions":
            yield Fault(
                "B1", f"{spec.name}.{node.name}.reads", "a cell of this graph", "None", node.where,
                "pass the cell whose versions it gives, as graph.latest gives it",
            )  # fmt: skip
    for feedback in spec.feedback:
        yield from _written(spec, feedback)
        if feedback.freshness is not None:
            yield from _unbounded(spec, feedback)


def _read(spec: Spec, node: NodeSpec, cell: str) -> Iterator[Fault]:
    if cell not in spec.cells:
        yield Fault(
            "B1", f"{spec.name}.{node.name}.reads", "a cell of this graph", f"'{cell}'", node.where,
            "declare it with graph.latest",
        )  # fmt: skip
    elif all(feedback.cell != cell for feedback in spec.feedback):
        yield Fault(
            "B4", f"{spec.name}.{cell}", "a feedback edge that writes the cell", f"none, and '{node.name}' reads it",
            spec.cells[cell].where, "add graph.feedback(sink, cell, initial=...)",
        )  # fmt: skip


def _written(spec: Spec, feedback: FeedbackSpec) -> Iterator[Fault]:
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


def _unbounded(spec: Spec, feedback: FeedbackSpec) -> Iterator[Fault]:
    """Who reads the cell on the sink's line before tickets are taken makes items whose age nothing bounds."""
    opener = spec.opener(feedback.source)
    early = set[str]() if opener is None else spec.ancestors(opener)
    for name in spec.nodes:
        if name in early and spec.nodes[name].reads == feedback.cell:
            yield Fault(
                "F3", f"{spec.name}.{feedback.source}->{feedback.cell}", "items that read the cell after their ticket is taken",
                f"'{name}', which reads it before the repeat", spec.nodes[name].where,
                "move it behind the repeat, or leave freshness out",
            )  # fmt: skip
