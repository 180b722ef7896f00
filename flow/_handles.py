"""Handles: what a graph gives for a declared node or cell, typed so that a wrong connection is an error in the editor.

They hold a name and nothing else of what was declared; that is the spec's.
"""

from typing import Any, Generic, Protocol, TypeVar, cast

T = TypeVar("T")
Out = TypeVar("Out")
In_contra = TypeVar("In_contra", contravariant=True)
Out_co = TypeVar("Out_co", covariant=True)


class Edges(Protocol):
    """The graph a handle belongs to, as far as the handle needs it."""

    name: str

    @property
    def origin(self) -> object:
        """The same for a graph and all that were made of it by a change; different for any two others."""
        ...

    def edge(self, source: "Node[Any, T]", target: "Node[T, Any]") -> None:
        """Connect two nodes."""
        ...


class Node(Generic[In_contra, Out_co]):
    """Handle of a declared node."""

    def __init__(self, graph: Edges, name: str) -> None:
        self._graph, self.name = graph, name

    def __rshift__(self: "Node[Any, Out]", other: "Node[Out, T]") -> "Node[Out, T]":
        """Connect two nodes; gives the right one, so that lines can be written."""
        self._graph.edge(self, node(other))
        return other

    def home(self, origin: object) -> str | None:
        """Name of the graph the node was declared in; ``None`` where it has this origin."""
        return None if self._graph.origin is origin else self._graph.name

    def __repr__(self) -> str:
        return f"<node {self._graph.name}.{self.name}>"


def node(given: Any) -> Node[Any, Any]:
    """Give the handle itself.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(given, Node):
        got = f"the {type(cast('object', given)).__name__} {given!r}"
        raise TypeError(f"expected a node, as graph.stage(...) gives it, got {got}; declare it first, and use what that gives")
    return cast("Node[Any, Any]", given)


class Cell(Generic[T]):
    """Handle of a versioned cell."""

    def __init__(self, name: str) -> None:
        self.name = name

    def _invariant(self, value: T) -> T:  # a cell is read and written, so its type may not widen
        return value
