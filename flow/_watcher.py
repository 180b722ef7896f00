"""Who looks on while a graph runs: watchers of what is handed on, and a tally of what was drawn and how it ended."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ._spec import Spec


class Watcher(Protocol):
    """Somebody who looks on. Called on the loop, so it must be quick; an exception ends the run."""

    def committed(self, node: str, values: Sequence[Any]) -> None:
        """Values left a node."""
        ...

    def reported(self, node: str, row: Mapping[str, Any]) -> None:
        """A stage handed in a row of metrics."""
        ...


class Tally(Protocol):
    """Somebody who keeps count of what was drawn and what became of it. Called on the loop; an exception ends the run.

    Each value that a source gives comes to one end, except that a broadcast, or a stage that gives several, multiplies them.
    """

    def drawn(self, node: str, values: Sequence[Any]) -> None:
        """A source gave values."""
        ...

    def ended(self, node: str, values: Sequence[Any], reason: str | None) -> None:
        """Values came to their end: a sink took them for good (``None``), or they were given up for a reason.

        A member's end is told by its group: as what the group was opened from, where that was dropped. What begins at a node of
        versions was never drawn, and its end is not told.
        """
        ...


class GuardedTally:
    """A tally whose mistakes end the run, but never leave a transition of the core half done.

    Args:
        tally: who counts.
        fail: ends the run with an error.
        spec: of the graph.
    """

    def __init__(self, tally: Tally, fail: Callable[[BaseException], None], spec: Spec) -> None:
        self._tally, self._fail = tally, fail
        self._lines = {
            name for name in spec.nodes if any(spec.nodes[node].kind == "source" for node in {name, *spec.ancestors(name)})
        }

    def drawn(self, node: str, values: Sequence[Any]) -> None:
        """See ``Tally``."""
        try:
            self._tally.drawn(node, values)
        except Exception as error:
            self._fail(error)

    def ended(self, node: str, values: Sequence[Any], reason: str | None) -> None:
        """See ``Tally``."""
        if node not in self._lines:
            return
        try:
            self._tally.ended(node, values, reason)
        except Exception as error:
            self._fail(error)
