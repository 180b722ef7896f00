"""Worker of a node with several edges at one end: a broadcast, a balance, a route, a merge."""

from .._core.channel import Channel
from .._core.fans import Fan
from .._errors import StageFailed
from .._policy import Drop, Failure
from .hands import Hands


class FanWorker:
    """Moves items while there is one and room for it. Always the only reader and the only writer of its edges."""

    def __init__(self, hands: Hands) -> None:
        self._hands, self._state, self._node = hands, hands.state, hands.node

    async def run(self) -> None:
        """Move items until no more can come."""
        node, fan, parker = self._node, self._node.fan, self._hands.parker
        assert fan is not None
        lines = [*(edge.consumers for edge in node.inputs), *(edge.producers for edge in node.outputs)]
        for line in lines:
            line.join(parker)  # stays in all of them to hear of items and of room
        try:
            while not all(edge.ended for edge in node.inputs):
                if not self._move(fan):
                    blocked = fan.blocked
                    place = ", ".join(edge.name for edge in node.inputs) if blocked is None else blocked.name
                    self._hands.lane.enter("input" if blocked is None else "output", place)
                    await parker.wait()
        finally:
            for line in lines:
                line.leave(parker)

    def _move(self, fan: Fan) -> bool:
        """Move or drop what can be; whether there was anything."""
        node, moved = self._node, False
        if node.complete:
            for edge in node.inputs:
                while edge.buffer:
                    self._drop(edge, "surplus")
                    moved = True
            return moved
        while True:
            try:
                item = self._state.pass_along(node)
            except Exception as error:
                self._failed(fan.inputs[0], error)
                moved = True
                continue
            if item is None:
                return moved
            moved = True
            self._hands.lane.work_on([item.path], {"birth": item.birth})
            node.budget.kept()
            if self._hands.host.watched:
                self._hands.host.committed(node.spec.name, [item.value])

    def _failed(self, edge: Channel, error: Exception) -> None:
        """The user's ``by`` raised, or gave a key without a branch."""
        item = edge.buffer[0]
        failure = Failure(type(error).__name__, str(error.args[0]) if error.args else "")
        self._node.meter.failures.setdefault(failure.kind, failure.message)
        if not isinstance(self._node.spec.on_error, Drop):
            raise StageFailed(self._node.spec.name, item.path, item.retry, item.attempt, error) from error
        self._node.budget.record("failed", f"{failure.kind}: {failure.message}")
        self._drop(edge, failure.kind, failure)
        if (exceeded := self._node.budget.exceeded()) is not None:
            raise exceeded

    def _drop(self, edge: Channel, reason: str, failure: Failure | None = None) -> None:
        self._state.drop(self._node, edge.take(), reason, failure, edge)
