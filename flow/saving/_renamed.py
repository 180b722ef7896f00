"""What is keyed by names of a graph, by names that have changed since: the outline in a manifest, and parts of a moment."""

from collections.abc import Mapping
from typing import Any, TypeVar

Value = TypeVar("Value")
_JOINED = "->"


def renamed(keyed: Mapping[str, Value], names: Mapping[str, str]) -> dict[str, Value]:
    """Give what is keyed by a name, or by an edge between two, by the names of now.

    Args:
        keyed: by the names of before.
        names: name of now by the name of before, of those that changed.
    """
    return {_JOINED.join(names.get(part, part) for part in key.split(_JOINED)): value for key, value in keyed.items()}


def outline_renamed(outline: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """An outline by the names of now; see ``renamed``. The graph's own name may be among them."""
    nodes = {name: {**node, "reads": names.get(node["reads"], node["reads"])} for name, node in outline["nodes"].items()}
    parts = {part: renamed(value, names) for part, value in {**outline, "nodes": nodes}.items() if part != "name"}
    return {"name": names.get(outline["name"], outline["name"]), **parts}
