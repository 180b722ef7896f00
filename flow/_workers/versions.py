"""The worker of a source of versions: gives the number of each version of a cell that is in force, and ends with the last."""

from .._core.cell import Cell
from .._core.channel import Channel
from .._core.item import Item
from .hands import Hands
from .pumped import Pumped


class Versions(Pumped):
    """Worker of a node that turns a cell into a stream. A version that gave way while there was no room is passed over."""

    def __init__(self, hands: Hands) -> None:
        super().__init__(hands)
        assert self.node.output is not None
        assert self.node.cell is not None
        self._output: Channel = self.node.output
        self._cell: Cell = self.node.cell

    def begin(self) -> None:
        """See ``Pumped``."""
        self._cell.listeners.append(self.pump)

    def end(self) -> None:
        """See ``Pumped``."""
        self._cell.listeners.remove(self.pump)

    def step(self) -> bool | None:
        """See ``Pumped``."""
        node, cell, output = self.node, self._cell, self._output
        while not node.complete:
            if cell.version <= node.given:
                return True if cell.final else self.wait("input", f"{cell.name} (a newer version)")
            if output.space <= 0:
                return self.wait("output", output.name)
            node.given, count = cell.version, output.put_count
            self.state.emit(node, [Item(cell.version, (*node.prefix, count), count)])
        return True
