"""Workers of a source: draw, wait for room, emit."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from .._core.channel import Channel
from .._core.item import Item
from .._errors import StageFailed
from .hands import Crew, Hands

END = object()
"""What ``draw`` gives after the last value: a coroutine cannot raise ``StopIteration``."""


def drawing(source: Any) -> Callable[[], Any]:
    """Give the function that draws from a source, an object with ``draw`` or an iterable."""
    if not hasattr(source, "draw"):
        return partial(next, iter(source), END)
    draw: Callable[[], Any] = source.draw

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
    while not node.complete:
        if crew.in_hand is None and crew.executor is None and node.output.room > 0:
            if not _fill(hands, node.output):
                return
            continue
        if crew.in_hand is None:
            count = node.output.put_count
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


def _fill(hands: Hands, channel: Channel) -> bool:
    """Draw and emit while there is room, in one step of the loop.

    Returns:
        Whether there may be more.
    """
    draw, buffer, lane, room = hands.crew.draw, channel.buffer, hands.lane, channel.room
    clock = lane.clock
    marks: list[Any] | None = None if lane.recorder is None else []
    first = count = channel.put_count
    more = True
    began = clock()
    lane.begin_series(began)
    try:
        while room > 0:
            if marks is not None:
                marks.append(clock() if marks else began)
                marks.append((count,))
            value = draw()
            if value is END:
                more = False
                break
            buffer.append(Item(value, (count,), count, position=count))
            count += 1
            room -= 1
    except Exception as error:
        raise StageFailed(hands.node.spec.name, (count,), 0, 0, error) from error
    finally:
        if marks:
            marks.append(clock())
            lane.end_series(marks, hands.about_path)
        if count > first:
            channel.added(count - first)
    return more


def _draw(crew: Crew, count: int) -> None:
    """Draw into the hand: a worker that is cancelled while a thread draws must not lose what it drew."""
    value = crew.draw()
    crew.in_hand = None if value is END else Item(value, (count,), count)
