"""Pictures of a graph: the text one. Works on any spec, also one that cannot be built."""

from ._limits import Processes, Threads
from ._policy import Emit, Fail, Missing, OnError, Retry, Shrink
from ._spec import EdgeSpec, NodeSpec, Spec
from ._types import type_name, untyped


def draw(spec: Spec) -> str:
    """Draw a graph from its sources down, one node a line, with the type and bound of each edge between.

    Behind a fan-out each branch is indented. A merge stands where the last of its inputs was drawn; the others point at it.
    """
    lines = [f"graph {spec.name}"]
    if spec.pools:
        bounds = {name: spec.pool_bounds(name) for name in spec.pools}
        sizes = (f"{name} {most}" if least == most else f"{name} {least} to {most}" for name, (least, most) in bounds.items())
        lines.append("  pools  " + ", ".join(sizes))
    if spec.rates:
        lines.append("  rates  " + ", ".join(f"{name} {starts:g}/s" for name, starts in spec.rates.items()))
    return "\n".join([*lines, *_Picture(spec).lines()])


class _Picture:
    """The lines of one picture under way."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._lines: list[str] = []
        self._drawn: set[str] = set()
        self._arrived: dict[str, int] = {}  # edges drawn so far to merges that are not

    def lines(self) -> list[str]:
        spec = self._spec
        starts = [name for name in spec.nodes if not spec.inputs(name)] or list(spec.nodes)[:1]
        for start in starts:
            self._line(start, "")
        for name in list(self._arrived):  # in a graph that is not sound an input of a merge may come from nowhere
            self._line(name, "")
        lost = [f"  [{name}]  (not connected to a source)" for name in spec.nodes if name not in self._drawn]
        return [*self._lines, *lost]

    def _line(self, name: str, indent: str) -> None:
        """Draw a node and what follows it, to the end of the line or to a fan-out and what is behind that."""
        while name in self._spec.nodes and name not in self._drawn:
            self._drawn.add(name)
            self._arrived.pop(name, None)
            self._node(self._spec.nodes[name], indent)
            edges = self._spec.outputs(name)
            if len(edges) > 1:
                self._branches(edges, indent)
            if len(edges) != 1:
                return
            edge = edges[0]
            self._lines.append(f"{indent}     |  {self._carries(edge)}".rstrip())
            if not self._goes_on(edge, indent == ""):
                self._lines.append(f"{indent}     +-> [{edge.target}]")
                return
            name = edge.target

    def _goes_on(self, edge: EdgeSpec, outermost: bool) -> bool:
        """Whether the line is drawn on into a node; else it points at it. A branch never runs on into a merge."""
        target = self._spec.nodes.get(edge.target)
        if target is None or target.name in self._drawn:
            return False
        if target.kind != "merge":
            return True
        self._arrived[target.name] = self._arrived.get(target.name, 0) + 1
        return outermost and self._complete(target.name)

    def _complete(self, merge: str) -> bool:
        return self._arrived[merge] == len(self._spec.inputs(merge))

    def _branches(self, edges: list[EdgeSpec], indent: str) -> None:
        for edge in edges:
            about = f"{self._label(edge)}{self._carries(edge)}"
            if self._goes_on(edge, outermost=False):
                self._lines.append(f"{indent}     +-- {about}".rstrip())
                self._line(edge.target, indent + ("        " if edge is edges[-1] else "     |  "))
            else:
                self._lines.append(f"{indent}     +-> [{edge.target}]  {about}".rstrip())
        for name in [name for name in self._arrived if self._complete(name)]:
            self._line(name, indent)

    def _label(self, edge: EdgeSpec) -> str:
        branches = self._spec.nodes[edge.source].branches
        keys = ", ".join(repr(key) for key, target in branches.items() if target == edge.target)
        return f"{keys}  " if keys else ""

    def _carries(self, edge: EdgeSpec) -> str:
        gives = self._spec.nodes[edge.source].gives
        bounded = edge.capacity.items is not None or edge.capacity.cost is not None
        durable = "  durable" if edge.durable else ""
        return ("" if untyped(gives) else type_name(gives)) + (f"  at most {edge.capacity}" if bounded else "") + durable

    def _node(self, node: NodeSpec, indent: str) -> None:
        self._lines.append(f"{indent}  [{node.name}]  {_settings(node)}".rstrip())
        for feedback in self._spec.feedback:
            if feedback.source == node.name:
                self._lines.append(f"{indent}{self._feedback(feedback.cell, node.name)}")

    def _feedback(self, cell: str, source: str) -> str:
        spec = self._spec
        readers = [node.name for node in spec.nodes.values() if node.reads == cell]
        freshness = next((f.freshness for f in spec.feedback if f.source == source and f.cell == cell), None)
        bound = f", max_lag={freshness.max_lag}" if freshness else ""
        bound += f", depth={freshness.depth}" if freshness and freshness.depth is not None else ""
        bound += ", late dropped" if freshness and freshness.late == "drop" else ""
        kind = type_name(spec.cells[cell].type) if cell in spec.cells else "?"
        return f"     ^  ({cell}: {kind}{bound}) back to {', '.join(readers) or 'nobody'}"


def _missing(missing: Missing) -> str:
    if isinstance(missing, Retry):
        return f"retry {missing.times}, then {missing.then}"
    return f"shrink to {missing.min_members}" if isinstance(missing, Shrink) else missing


def _on_error(policy: OnError) -> str:
    final = policy.then if isinstance(policy, Retry) else policy
    if isinstance(final, str):  # of a graph that cannot be built
        return final
    last = f"emit {_called(final.make)}" if isinstance(final, Emit) else type(final).__name__.lower()
    return f"retry {policy.times}, then {last}" if isinstance(policy, Retry) else last


def _settings(node: NodeSpec) -> str:
    parts = [node.kind]
    if node.stage is not None:
        parts.append(_called(node.stage))
    if node.workers > 1:
        parts.append(f"{node.workers} workers")
    if node.kind == "repeat":
        parts.append(f"x {node.size}")
    if node.kind == "group":
        parts.append(f"missing: {_missing(node.missing)}")
    if node.by is not None:
        parts.append(f"by {_called(node.by)}")
    if any(weight != 1 for weight in node.weights.values()):
        parts.append(", ".join(f"{weight} of {name}" for name, weight in node.weights.items()))
    if node.collect is not None:
        steps = "" if node.collect.steps is None else f", {node.collect.steps} steps"
        parts.append(f"{node.collect.items} a step{steps}")
    if node.order == "input":
        parts.append("in order")
    if node.key is not None:
        parts.append(f"one at a time by {_called(node.key)}")
    if node.needs:
        parts.append("needs " + ", ".join(f"{units} {name}" for name, units in node.needs.items()))
    if node.reads:
        parts.append(f"reads {node.reads}")
    if node.deadline_s is not None:
        parts.append(f"deadline {node.deadline_s:g} s")
    if not isinstance(node.on_error, Fail):
        parts.append(f"on error: {_on_error(node.on_error)}")
    if isinstance(node.placement, Threads | Processes):
        alone, several = (
            ("own thread", "on threads") if isinstance(node.placement, Threads) else ("own process", "in processes")
        )
        parts.append(alone if node.workers == 1 else several)
    return ", ".join(parts)


def _called(code: object) -> str:
    """Name of a function, or of the class of an object."""
    name = getattr(code, "__name__", type(code).__name__)
    return "a lambda" if name == "<lambda>" else name
