"""What ``build`` proves about pairs and tickets in a graph that branches (B5, F3).

Between a repeat and its group every member reports once; between a repeat and a sink with freshness every group ends once. So
all items of the group or sink come from one repeat, every branch of a route or a balance on the way leads on to it, and of a
broadcast one branch does: copies hold no ticket and belong to no group.
"""

from collections.abc import Iterator, Sequence

from ._errors import Fault
from ._spec import FeedbackSpec, NodeSpec, Spec


def pairs(spec: Spec) -> Iterator[Fault]:
    """Rules B5 for repeats and groups, and F3 for tickets. The graph's shape is sound."""
    groups = {node.name: spec.opener(node.name) for node in spec.nodes.values() if node.kind == "group"}
    for node in spec.nodes.values():
        if node.kind == "group":
            yield from _one_repeat(spec, node)
            yield from _one_group(
                spec, node, [name for name, opener in groups.items() if opener and opener == groups[node.name]]
            )
        if node.kind == "repeat":
            yield from _closed(spec, node, groups)
            yield from _not_nested(spec, node)
    for opener in dict.fromkeys(groups.values()):
        inside = [name for name, other in groups.items() if other == opener]
        if opener is not None and len(inside) == 1:
            end = spec.nodes[inside[0]]
            yield from _all_lead_to(spec, spec.path(end.name), end, "B5")
    yield from _tickets(spec)


def _one_repeat(spec: Spec, node: NodeSpec) -> Iterator[Fault]:
    ends = spec.origins(node.name)
    opened, others = _split(spec, ends)
    if not opened:
        yield Fault(
            "B5", f"{spec.name}.{node.name}", "a repeat somewhere before it, which opens the groups", "none", node.where,
            "put graph.repeat(...) before the node whose outputs it gathers",
        )  # fmt: skip
    elif others:
        yield Fault(
            "B5", f"{spec.name}.{node.name}", "members of one repeat and nothing else",
            f"members of {_quoted(opened)}, and items of {_quoted(others)}, which are none{_meeting(spec, node)}",
            node.where, "join the others before the repeat or behind the group",
        )  # fmt: skip
    elif len(opened) > 1:
        yield Fault(
            "B5", f"{spec.name}.{node.name}", "members of one repeat", f"members of {_quoted(opened)}{_meeting(spec, node)}",
            node.where, "join them before one repeat, or gather each by a group of its own and merge the groups",
        )  # fmt: skip


def _one_group(spec: Spec, node: NodeSpec, groups: Sequence[str]) -> Iterator[Fault]:
    if node.name not in groups[1:]:
        return
    first, opener = spec.nodes[groups[0]], spec.opener(node.name)
    shared = set(spec.path(first.name)) & set(spec.path(node.name))
    copied = [name for name in shared if spec.nodes[name].kind == "broadcast"]
    remedy = f"merge the branches before '{first.name}'"
    if copied:
        remedy = f"gather once and copy the groups: put '{copied[0]}' behind '{first.name}', or end this branch in a sink"
    yield Fault(
        "B5", f"{spec.name}.{node.name}", f"one group for the members of '{opener}'",
        f"'{first.name}' ({first.where}), which gathers them too", node.where, remedy,
    )  # fmt: skip


def _closed(spec: Spec, node: NodeSpec, groups: dict[str, str | None]) -> Iterator[Fault]:
    behind = [name for name in groups if node.name in spec.origins(name)]
    if not behind:
        yield Fault(
            "B5", f"{spec.name}.{node.name}", "a group after it, which closes the groups", "none", node.where,
            "put graph.group(...) after the node that handles the members",
        )  # fmt: skip


def _not_nested(spec: Spec, node: NodeSpec) -> Iterator[Fault]:
    for outer in spec.enclosing(node.name):
        yield Fault(
            "B5", f"{spec.name}.{node.name}", f"the groups of '{outer}' gathered before they are repeated again",
            f"a repeat between '{outer}' and its group", node.where,
            f"put graph.group(...) before it, or make {node.size} times as many members in '{outer}'",
        )  # fmt: skip


def _all_lead_to(spec: Spec, path: Sequence[str], end: NodeSpec, rule: str) -> Iterator[Fault]:
    """Every item on the way from a repeat gets to the end of the way, and gets there once."""
    what = "a member reports there once" if end.kind == "group" else "a group is used there once and gives its ticket back"
    for name in path:
        node = spec.nodes[name]
        targets = [edge.target for edge in spec.outputs(name)] if name != end.name else []
        on = [target for target in targets if target in path]
        if node.kind == "broadcast" and len(on) > 1:
            yield Fault(
                rule, f"{spec.name}.{name}", f"one branch that leads on to the {end.kind} '{end.name}': {what}",
                f"{len(on)}, through {_quoted(on)}", node.where,
                "end the other branches in sinks of their own, or use graph.balance or graph.route",
            )  # fmt: skip
        for target in targets if node.kind != "broadcast" else ():
            if target not in on:
                yield Fault(
                    rule, f"{spec.name}.{name}", f"every branch to lead on to the {end.kind} '{end.name}': {what}",
                    f"one that ends in {_quoted(sorted(spec.sinks_of(target)))}, through '{target}'", node.where,
                    f"merge this branch with the others before '{end.name}'; what is not wanted is returned as Filtered",
                )  # fmt: skip


def _tickets(spec: Spec) -> Iterator[Fault]:
    bounded = [feedback for feedback in spec.feedback if feedback.freshness is not None]
    first: dict[str, FeedbackSpec] = {}
    for feedback in bounded:
        node, path = spec.nodes[feedback.source], f"{spec.name}.{feedback.source}->{feedback.cell}"
        ends = spec.origins(node.name)
        opened, others = _split(spec, ends)
        opener = spec.opener(node.name)
        if not opened:
            yield Fault(
                "F3", path, "a repeat before the sink, where tickets are taken", "none", feedback.where,
                "put graph.repeat(..., n=1) and a group before the sink, or leave freshness out",
            )  # fmt: skip
        elif others:
            yield Fault(
                "F3", path, "a ticket held by every item that the sink takes",
                f"groups of {_quoted(opened)}, and items of {_quoted(others)}, which hold none{_meeting(spec, node)}",
                feedback.where, "merge them before the repeat, or give them a sink of their own",
            )  # fmt: skip
        elif opener is None:
            yield Fault(
                "F3", path, "one repeat where all tickets of the sink are taken",
                f"groups of {_quoted(opened)}{_meeting(spec, node)}", feedback.where,
                "merge the lines before one repeat, or give each a sink of its own",
            )  # fmt: skip
        elif opener in first:
            other = first[opener]
            yield Fault(
                "F3", path, f"one feedback edge with freshness for the tickets of '{opener}'",
                f"{other.source}->{other.cell}, which governs them too ({other.where})", feedback.where,
                "leave freshness out of one of the two",
            )  # fmt: skip
        elif spec.enclosing(node.name):
            yield Fault(
                "F3", path, f"groups of '{opener}', each of which holds a ticket", "single members, which hold none",
                feedback.where, "put graph.group(...) before the sink; a copy on a side branch of a broadcast stays without",
            )  # fmt: skip
        else:
            first[opener] = feedback
            closed = [name for name in spec.path(node.name) if spec.nodes[name].kind == "group"]
            behind = [name for name in spec.path(node.name) if name in closed or closed[0] in spec.ancestors(name)]
            yield from _all_lead_to(spec, behind, node, "F3")


def _split(spec: Spec, ends: Sequence[str]) -> tuple[list[str], list[str]]:
    """Ends of the ways back: those that are repeats, and the others."""
    opened = [name for name in ends if spec.nodes[name].kind == "repeat"]
    return opened, [name for name in ends if name not in opened]


def _meeting(spec: Spec, node: NodeSpec) -> str:
    """Where the ways to a node first come together."""
    depths, before = spec.depths(), spec.ancestors(node.name)
    merges = sorted((name for name in before if spec.nodes[name].kind == "merge"), key=lambda name: (depths[name], name))
    for name in merges:
        ends = {tuple(_ends(spec, edge.source)) for edge in spec.inputs(name)}
        if len(ends) > 1:
            return f"; they meet at '{name}' ({spec.nodes[name].where})"
    return ""


def _ends(spec: Spec, name: str) -> list[str]:
    """Origins of the items behind a node."""
    return [name] if spec.nodes[name].kind == "repeat" else spec.origins(name)


def _quoted(names: Sequence[str]) -> str:
    return " and ".join(f"'{name}'" for name in names)
