"""Workers of a repeat and of a group: the two ends of a pair. The repeat opens groups, the group waits for their members."""

from .._core.channel import Channel
from .._core.groups import Groups
from .._core.item import Item
from .._item import Gathered
from .hands import Hands
from .pumped import Pumped


class Repeat(Pumped):
    """Worker of a repeat node: opens groups, and issues members again that their barrier wants retried."""

    def __init__(self, hands: Hands) -> None:
        super().__init__(hands)
        node = hands.node
        assert node.input is not None
        assert node.output is not None
        assert node.groups is not None
        self._input: Channel = node.input
        self._output: Channel = node.output
        self._groups: Groups = node.groups
        self._admission = node.admission

    def begin(self) -> None:
        """See ``Pumped``."""
        self._groups.on_retry = self.pump
        if self._admission is not None:
            self._admission.listeners.append(self.pump)

    def end(self) -> None:
        """See ``Pumped``."""
        self._groups.on_retry = None
        if self._admission is not None:
            self._admission.listeners.remove(self.pump)

    def step(self) -> bool | None:
        """See ``Pumped``."""
        node, channel, output, groups, admission = self.node, self._input, self._output, self._groups, self._admission
        while True:
            if node.complete and channel.buffer:
                self.state.drop(node, self.state.lease(node), "surplus")
            elif groups.retries:
                if not output.fits([groups.retries[0]]):
                    return self.wait("output", output.name)
                self.state.emit(node, [groups.retries.popleft()])
            elif channel.buffer and (admission is None or admission.may_open):
                if not output.fits([channel.buffer[0]] * node.spec.size):
                    return self.wait("output", output.name)
                self._open_group(self.state.lease(node))
            elif channel.ended and not groups.open:
                return True
            else:
                return self.wait("ticket" if channel.buffer and admission is not None else "input", channel.name)

    def _open_group(self, item: Item) -> None:
        members = self.state.open_group(self.node, item)
        if self.lane.recorder is not None:
            paths = [item.path, *(member.path for member in members)]
            self.lane.work_on(paths, {"birth": members[0].birth})
        self.state.commit(self.node, item, members)


class Barrier(Pumped):
    """Worker of a group node: hands closed groups on as room allows, and absorbs members meanwhile.

    It absorbs while no more groups wait than the edge behind it would hold. So members are refused only for groups that are
    whole already, and waiting for room can never keep a group from closing that the other side waits for.
    """

    def __init__(self, hands: Hands) -> None:
        super().__init__(hands)
        assert hands.node.input is not None
        assert hands.node.output is not None
        self._input: Channel = hands.node.input
        self._output: Channel = hands.node.output

    def step(self) -> bool | None:
        """See ``Pumped``."""
        node, channel, output = self.node, self._input, self._output
        while True:
            if (exceeded := node.budget.exceeded()) is not None:
                raise exceeded
            if channel.buffer and len(node.ready) < output.max_items:
                self.state.absorb(node, self.state.lease(node))
            elif node.ready and output.fits([node.ready[0]]):
                item = node.ready[0]
                if self.lane.recorder is not None:
                    self.lane.work_on(_paths(item), {"birth": item.birth})
                self.state.release_ready(node)
                if self.host.watched:
                    self.host.committed(node.spec.name, [item.value])
            elif channel.ended and not node.ready:
                return True
            elif node.ready:
                return self.wait("output", output.name)
            else:
                return self.wait("input", channel.name)


def _paths(item: Item) -> list[tuple[int, ...]]:
    """Arrows that end in a gathered group: its members', and its own, which goes on."""
    gathered: Gathered[object] = item.value
    size = len(gathered.members) + len(gathered.failures)
    return [item.path, *((*item.path, index) for index in range(size))]
