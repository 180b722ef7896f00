"""What workers have in common whose work is one synchronous step, repeated when something changed that it waits for."""

from .._core.meter import State as Doing
from .._park import Pump
from .hands import Hands


class Pumped:
    """A worker that is always the only one at its ends of the edges, and stands in their lines to hear of items and of room.

    In the lines for room it stands only while it waits for room: whatever leaves the edges behind it would call for a step.

    Attributes:
        hands: the worker.
        host: the run.
        state: its moment.
        node: state of the node.
        lane: the worker's time.
        pump: what to call when the step may find something to do.
    """

    pump: Pump

    def __init__(self, hands: Hands) -> None:
        self.hands, self.host, self.state, self.node, self.lane = hands, hands.host, hands.state, hands.node, hands.lane
        self._lacks_room = False

    async def run(self) -> None:
        """Work until the node is at its end."""
        self.pump = Pump(self.step, self.hands.parker)
        ended = False
        while not ended:
            for edge in self.node.inputs:
                edge.consumers.join(self.pump)
            self.begin()
            try:
                ended = await self.pump.run()
            except BaseException:
                self.undo()
                raise
            finally:
                self.end()
                self._stand_for_room(False)
                for edge in self.node.inputs:
                    edge.consumers.leave(self.pump)
            if not ended:
                await self.aside()

    def begin(self) -> None:
        """Register with whatever else there is to hear from."""

    def end(self) -> None:
        """Undo ``begin``."""

    def step(self) -> bool | None:
        """Do all that can be done now.

        Returns:
            ``None`` to wait; ``True`` at the end of the node; ``False`` where something has to be awaited aside.
        """
        raise NotImplementedError

    def undo(self) -> None:
        """The worker is cancelled before ``aside`` began: give back what the step left for it."""

    async def aside(self) -> None:
        """Await what the step could not; nobody else touches the node meanwhile."""
        raise AssertionError("this worker's steps never ask for it")

    def wait(self, state: Doing, detail: str) -> None:
        """Note what the worker waits for. Only ``output`` hears of room."""
        if self._lacks_room is not (state == "output"):
            self._stand_for_room(state == "output")
        self.lane.enter(state, detail)

    def _stand_for_room(self, lacks: bool) -> None:
        if lacks is not self._lacks_room:
            self._lacks_room = lacks
            for edge in self.node.outputs:
                if lacks:
                    edge.producers.join(self.pump)
                else:
                    edge.producers.leave(self.pump)
