"""Worker of a node with several edges at one end: a broadcast, a balance, a route, a merge."""

from .._core.channel import Channel
from .._core.fans import Fan
from .._errors import StageFailed
from .._policy import Drop, Failure
from .hands import Hands
from .pumped import Pumped


class FanWorker(Pumped):
    """Moves items while there is one and room for it."""

    def __init__(self, hands: Hands) -> None:
        super().__init__(hands)
        assert hands.node.fan is not None
        self._fan: Fan = hands.node.fan

    def step(self) -> bool | None:
        """See ``Pumped``."""
        node = self.node
        if node.complete:
            for edge in node.inputs:
                while edge.buffer:
                    self._drop(edge, "surplus")
        else:
            self._move()
        if all(edge.ended for edge in node.inputs):
            return True
        blocked = self._fan.blocked
        if blocked is None:
            return self.wait("input", ", ".join(edge.name for edge in node.inputs))
        return self.wait("output", blocked.name)

    def _move(self) -> None:
        node = self.node
        while True:
            try:
                item = self.state.pass_along(node)
            except Exception as error:
                self._failed(self._fan.inputs[0], error)
                continue
            if item is None:
                return
            if self.lane.recorder is not None:
                self.lane.work_on([item.path], {"birth": item.birth})
            node.budget.kept()
            if self.host.watched:
                self.host.committed(node.spec.name, [item.value])

    def _failed(self, edge: Channel, error: Exception) -> None:
        """The user's ``by`` raised, or gave a key without a branch."""
        item = edge.buffer[0]
        failure = Failure(type(error).__name__, str(error.args[0]) if error.args else "")
        self.node.meter.failures.setdefault(failure.kind, failure.message)
        if not isinstance(self.node.spec.on_error, Drop):
            raise StageFailed(self.node.spec.name, item.path, item.retry, item.attempt, error) from error
        self.node.budget.record("failed", f"{failure.kind}: {failure.message}")
        self._drop(edge, failure.kind, failure)
        if (exceeded := self.node.budget.exceeded()) is not None:
            raise exceeded

    def _drop(self, edge: Channel, reason: str, failure: Failure | None = None) -> None:
        self.state.drop(self.node, edge.take(), reason, failure, edge)
