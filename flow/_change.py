"""Changes to a declared graph, as functions from data to data: other settings, another stage, a node taken out.

``Graph.with_``, ``replace`` and ``without`` are thin over these; ``build`` looks at the result like at any other graph.
"""

import difflib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

from ._spec import EdgeSpec, Kind, NodeSpec, caller
from ._types import drawn_by, hints_of

Key = TypeVar("Key")
T = TypeVar("T")
Edges = dict[tuple[str, str], EdgeSpec]

SETTINGS: Mapping[Kind, Mapping[str, str]] = {
    "source": {"placement": "placement"},
    "versions": {"reads": "reads"},
    "stage": {
        "workers": "workers", "order": "order", "key": "key", "needs": "needs", "reads": "reads", "deadline_s": "deadline_s",
        "on_error": "on_error", "budget": "budget", "placement": "placement",
    },
    "repeat": {"n": "size"},
    "group": {"missing": "missing", "budget": "budget"},
    "broadcast": {},
    "balance": {},
    "route": {"by": "by", "to": "branches", "on_error": "on_error", "budget": "budget"},
    "merge": {"weights": "weights", "patience": "patience"},
    "sink": {"on_error": "on_error", "placement": "placement", "collect": "collect"},
}  # fmt: skip
"""Settings of each kind of node, and the field of the spec that holds each."""

FIELDS: Mapping[str, str] = {setting: field for settings in SETTINGS.values() for setting, field in settings.items()}
"""Every setting there is, and its field."""


def with_settings(graph: str, node: NodeSpec, changes: Mapping[str, Any]) -> NodeSpec:
    """Give a node with other settings. Those that its kind does not have are a fault that ``build`` finds.

    Raises:
        TypeError: no kind has such a setting.
    """
    for key in changes:
        if key not in FIELDS:
            near = difflib.get_close_matches(key, FIELDS, 1)
            hint = f"did you mean '{near[0]}'?" if near else "replace changes the stage itself"
            wanted = ", ".join(SETTINGS[node.kind]) or "it has none"
            raise TypeError(f"expected a setting of {graph}.{node.name} ({wanted}), got '{key}'; {hint}")
    fields: dict[str, Any] = {FIELDS[key]: value for key, value in changes.items()}
    if "reads" in fields:
        fields["reads"] = named(fields["reads"])
    if "branches" in fields:
        fields["branches"] = {key: named(target) for key, target in branches(fields["branches"]).items()}
    for mapping in ("needs", "weights"):
        if mapping in fields:
            fields[mapping] = copied(fields[mapping])
    return replace(node, **fields, where=caller())


def with_stage(node: NodeSpec, work: Any) -> NodeSpec:
    """Give a node with another stage, and the types that come with it."""
    if node.kind == "source":
        return replace(node, stage=work, gives=drawn_by(work), where=caller())
    takes, gives = hints_of(work) if node.collect is None else collected(work)
    return replace(node, stage=work, takes=takes, gives=gives, where=caller())


def rerouted(edges: Edges, old: NodeSpec, new: NodeSpec) -> Edges:
    """Edges after the branches of a route changed: none to those it no longer has, one to each it has now."""
    gone = set(old.branches.values()) - set(new.branches.values())
    kept = {key: edge for key, edge in edges.items() if key[0] != new.name or key[1] not in gone}
    for target in new.branches.values():
        kept.setdefault((new.name, target), EdgeSpec(new.name, target, where=new.where))
    return kept


def bridged(graph: str, nodes: Mapping[str, NodeSpec], edges: Edges, name: str) -> tuple[dict[str, NodeSpec], Edges]:
    """Nodes and edges without a node, its neighbours joined.

    The joined edge has the bound of the one before the node, whose items it carries, and the place among the inputs of its
    reader of the one behind, so that the inputs of a merge keep their numbers.

    Raises:
        ValueError: the node has not one input and one output, or its neighbours are connected already.
    """
    before = [edge for edge in edges.values() if edge.target == name]
    after = [edge for edge in edges.values() if edge.source == name]
    if len(before) != 1 or len(after) != 1:
        raise ValueError(
            f"expected a node with one input and one output, got the {nodes[name].kind} {graph}.{name} with {len(before)} and "
            f"{len(after)} ({nodes[name].where}); take out nodes on a line only"
        )
    source, target = before[0].source, after[0].target
    if (source, target) in edges:
        raise ValueError(
            f"expected neighbours that are not connected, got the edge {graph}.{edges[source, target].name} "
            f"({edges[source, target].where}) beside {name}; that edge would stand twice"
        )
    joined = replace(before[0], target=target, where=caller())
    places = {(name, target): ((source, target), joined)}
    left = dict(places.get(key, (key, edge)) for key, edge in edges.items() if key != (source, name))
    kept = {other: _renamed(node, source, target, name) for other, node in nodes.items() if other != name}
    return kept, left


def collected(work: Any) -> tuple[Any, Any]:
    """What a collector takes and gives. A method it lacks says nothing here and is a fault when the graph is built."""
    return hints_of(getattr(work, "add", None))[0], hints_of(getattr(work, "finish", None))[1]


def _renamed(node: NodeSpec, source: str, target: str, gone: str) -> NodeSpec:
    """A neighbour of a node that was taken out: its branches and weights name the node on the other side."""
    if node.name == source and node.branches:
        return replace(node, branches={key: target if name == gone else name for key, name in node.branches.items()})
    if node.name == target and gone in node.weights:
        return replace(node, weights={source if name == gone else name: weight for name, weight in node.weights.items()})
    return node


def copied(given: Any) -> Any:
    """A copy of a mapping, empty for ``None``; what is none is for ``build`` to tell."""
    return {} if given is None else dict(cast("Mapping[Any, Any]", given)) if isinstance(given, Mapping) else given


def branches(to: Mapping[Key, T]) -> Mapping[Key, T]:
    """Give the branches of a route.

    Raises:
        TypeError: there are no keys.
    """
    given: Any = to
    if not isinstance(given, Mapping):
        raise TypeError(f"expected the node behind each key, got {given!r}; pass to={{key: node}}")
    return to


def named(handle: Any) -> Any:
    """Name of a handle; what is none, as ``None`` or a name itself, stays."""
    return getattr(handle, "name", handle)
