"""Workers of a repeat and of a group: the two ends of a pair. The repeat opens groups, the group waits for their members."""

from .._core.channel import Channel
from .._core.item import Item
from .._core.node import NodeState
from .._item import Gathered
from .hands import Hands


class Repeat:
    """Worker of a repeat node."""

    def __init__(self, hands: Hands) -> None:
        self._hands, self._state, self._node = hands, hands.state, hands.node

    async def run(self) -> None:
        """Open groups, and issue members again that their barrier wants retried, until nothing more can come."""
        node, groups, admission = self._node, self._node.groups, self._node.admission
        assert node.input is not None
        assert node.output is not None
        assert groups is not None
        groups.on_retry = self._hands.parker
        if admission is not None:
            admission.listeners.append(self._hands.parker)
        node.input.consumers.join(self._hands.parker)  # always the only consumer: stays in line to hear of items
        try:
            await self._open_groups(node.input, node.output)
        finally:
            if admission is not None:
                admission.listeners.remove(self._hands.parker)
            node.input.consumers.leave(self._hands.parker)

    async def _open_groups(self, channel: Channel, output: Channel) -> None:
        node, groups, admission = self._node, self._node.groups, self._node.admission
        assert groups is not None
        while True:
            if node.complete and channel.buffer:
                self._state.drop(node, self._state.lease(node), "surplus")
            elif groups.retries:
                await self._hands.wait_for_room(output, [groups.retries[0]])
                if groups.retries:
                    self._state.emit(node, [groups.retries.popleft()])
            elif channel.buffer and (admission is None or admission.may_open):
                await self._open_group(node, output)
            elif channel.ended and not groups.open:
                return
            else:
                waits_for_ticket = bool(channel.buffer) and admission is not None
                self._hands.lane.enter("ticket" if waits_for_ticket else "input", channel.name)
                await self._hands.parker.wait()

    async def _open_group(self, node: NodeState, output: Channel) -> None:
        item = self._state.lease(node)
        try:
            await self._hands.wait_for_room(output, [item] * node.spec.size)
        except BaseException:
            self._state.give_back(node, item)
            raise
        members = self._state.open_group(node, item)
        paths = [item.path, *(member.path for member in members)]
        self._hands.lane.work_on(paths, {"birth": members[0].birth})
        self._state.commit(node, item, members)
        self._hands.lane.enter("input", output.name)


class Barrier:
    """Worker of a group node."""

    def __init__(self, hands: Hands) -> None:
        self._hands, self._state, self._node = hands, hands.state, hands.node

    async def run(self) -> None:
        """Hand closed groups on as room allows, and absorb members while no more of them wait than the edge would hold.

        Members are refused only for groups that are whole already, so waiting for room can never keep a group from closing
        that the other side waits for.
        """
        node = self._node
        assert node.input is not None
        assert node.output is not None
        node.input.consumers.join(self._hands.parker)  # always the only one at both ends: stays in line to hear of both
        node.output.producers.join(self._hands.parker)
        try:
            while not (node.input.ended and not node.ready):
                if (exceeded := node.budget.exceeded()) is not None:
                    raise exceeded
                if len(node.input) and len(node.ready) < node.output.max_items:
                    self._state.absorb(node, self._state.lease(node))
                elif node.ready and node.output.fits([node.ready[0]]):
                    item = node.ready[0]
                    self._hands.lane.work_on(_paths(item), {"birth": item.birth})
                    self._state.release_ready(node)
                    self._hands.host.committed(node.spec.name, [item.value])
                else:
                    self._hands.lane.enter(
                        "output" if node.ready else "input", node.output.name if node.ready else node.input.name
                    )
                    await self._hands.parker.wait()
        finally:
            node.output.producers.leave(self._hands.parker)
            node.input.consumers.leave(self._hands.parker)


def _paths(item: Item) -> list[tuple[int, ...]]:
    """Arrows that end in a gathered group: its members', and its own, which goes on."""
    gathered: Gathered[object] = item.value
    size = len(gathered.members) + len(gathered.failures)
    return [item.path, *((*item.path, index) for index in range(size))]
