"""Worker of a stage or plain sink whose code never waits (``Burst.possible``)."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from .._core.channel import Channel
from .._core.item import Item
from .burst import Burst
from .hands import Hands
from .pumped import Pumped


class InBursts(Pumped):
    """One stretch after another, and what is special about an item aside.

    Args:
        hands: the worker.
        finish: handles a leased item and its special outcome, as any other attempt is handled.
    """

    def __init__(self, hands: Hands, finish: Callable[[Item, Any], Awaitable[None]]) -> None:
        super().__init__(hands)
        assert hands.node.input is not None
        self._finish, self._burst = finish, Burst(hands)
        self._input: Channel = hands.node.input
        self._special: tuple[Item, Any] | None = None

    def step(self) -> bool | None:
        """See ``Pumped``."""
        channel, output = self._input, self.node.output
        while True:
            self._special = self._burst.run()
            if self._special is not None:
                return False
            if not channel.buffer:
                return True if channel.ended else self.wait("input", channel.name)
            if self._burst.long:
                self.pump()  # others first
                return self.wait("input", channel.name)
            if reason := self.state.unwanted(self.node, channel.buffer[0]):
                self.state.drop(self.node, self.state.lease(self.node), reason)
            elif output is not None and output.space <= 0:
                return self.wait("output", output.name)

    def undo(self) -> None:
        """See ``Pumped``."""
        if self._special is not None:
            item, outcome = self._special
            if inspect.iscoroutine(outcome):
                outcome.close()
            self.state.give_back(self.node, item)

    async def aside(self) -> None:
        """See ``Pumped``."""
        assert self._special is not None
        special, self._special = self._special, None
        await self._finish(*special)
        if self.hands.cancelled:
            raise asyncio.CancelledError
