"""Workers of a source: draw, wait for room, emit."""

import asyncio
from collections.abc import Callable
from typing import Any

from .._core.item import Item
from .._errors import StageFailed
from .hands import Crew, Hands

END = object()
"""What ``draw`` gives after the last value: a coroutine cannot raise ``StopIteration``."""


def drawing(source: Any) -> Callable[[], Any]:
    """Give the function that draws from a source, an object with ``draw`` or an iterable."""
    draw: Callable[[], Any] = source.draw if hasattr(source, "draw") else iter(source).__next__

    def draw_or_end() -> Any:
        try:
            return draw()
        except StopIteration:
            return END

    return draw_or_end


async def run_source(hands: Hands) -> None:
    """Emit what the source gives until it ends or the run is complete."""
    node, crew = hands.node, hands.crew
    assert node.output is not None
    while crew.in_hand is not None or not node.complete:
        if crew.in_hand is None:
            count = node.meter.emitted
            hands.lane.work(hands.about_path, (count,))
            try:
                if crew.executor is None:
                    _draw(crew, count)
                else:
                    await hands.call(_draw, crew, count)
            except Exception as error:
                raise StageFailed(node.spec.name, (count,), 0, 0, error) from error
            if hands.cancelled:
                raise asyncio.CancelledError
        if crew.in_hand is None:
            return
        await hands.wait_for_room(node.output, [crew.in_hand])
        hands.state.emit(node, [crew.in_hand])
        crew.in_hand = None


def _draw(crew: Crew, count: int) -> None:
    """Draw into the hand: a worker that is cancelled while a thread draws must not lose what it drew."""
    value = crew.draw()
    crew.in_hand = None if value is END else Item(value, (count,), count)
