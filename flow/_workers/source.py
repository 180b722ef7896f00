"""Workers of a source: draw, wait for room, emit."""

import asyncio
from collections.abc import Iterator
from itertools import islice
from typing import Any

from .._core.channel import Channel
from .._core.item import Item
from .._errors import StageFailed
from .._lane import Stretch
from .hands import Crew, Hands
from .pumped import Pumped

END = object()
"""Stands for the end of a source: a coroutine cannot raise ``StopIteration``."""


def drawn_from(source: Any, skipped: int = 0) -> Iterator[Any]:
    """Give the values of a source, an object with ``draw`` or an iterable; of a sequence without so many of its first."""
    if hasattr(source, "draw"):
        return iter(source.draw, END)
    return map(source.__getitem__, range(skipped, len(source))) if skipped else iter(source)


class Filling(Pumped):
    """Worker of a source on the loop whose edge has no cost: draws as many as there is room for."""

    def step(self) -> bool | None:
        """See ``Pumped``."""
        node, output = self.node, self.node.output
        assert output is not None
        if node.complete:
            return True
        if output.space > 0 and not _fill(self.hands, output):
            return True
        return self.wait("output", output.name)


async def run_source(hands: Hands) -> None:
    """Emit what the source gives until it ends or the run is complete."""
    node, crew = hands.node, hands.crew
    assert node.output is not None
    if crew.executor is None and node.output.max_cost is None and crew.in_hand is None:
        await Filling(hands).run()
        return
    while crew.in_hand is not None or not node.complete:
        if crew.in_hand is None:
            count = node.output.put_count
            hands.lane.work_on([(*node.prefix, count)], {"item": str(count)})
            try:
                drawn = _draw(crew) if crew.executor is None else await hands.call(_draw, crew)
            except Exception as error:
                raise StageFailed(node.spec.name, (count,), 0, 0, error) from error
            _take(crew, count, *drawn)
            if hands.cancelled:
                raise asyncio.CancelledError
        if crew.in_hand is None:
            return
        await hands.wait_for_room(node.output, [crew.in_hand])
        hands.state.emit(node, [crew.in_hand])
        if hands.host.tally is not None:
            hands.host.tally.drawn(node.spec.name, [crew.in_hand.value])
        crew.in_hand = None


def _fill(hands: Hands, channel: Channel) -> bool:
    """Draw and emit while there is room, in one step of the loop.

    Returns:
        Whether there may be more.
    """
    buffer, lane, room = channel.buffer, hands.lane, channel.space
    first = count = channel.put_count
    prefix = hands.node.prefix
    began = lane.clock()
    stretch, last, quick = lane.stretch(began, (*prefix, count)), began, 0
    try:
        for value in islice(hands.crew.values, room):
            buffer.append(Item(value, (*prefix, count) if prefix else (count,), count, None, 0, None, None, count))
            if stretch is not None:
                now = lane.clock()
                if now - last > Stretch.QUICK_S or stretch.within:
                    stretch.slow((*prefix, count), last, now, quick, (*prefix, count + 1))
                    quick = 0
                else:
                    quick += 1
                last = now
            count += 1
    except Exception as error:
        raise StageFailed(hands.node.spec.name, (count,), 0, 0, error) from error
    finally:
        if count > first:
            channel.added(count - first)
            if hands.host.tally is not None:
                newest = islice(reversed(buffer), count - first)
                hands.host.tally.drawn(hands.node.spec.name, [item.value for item in newest])
            if stretch is not None:
                lane.end_stretch(stretch.end(last, quick))
    return count - first == room


def _draw(crew: Crew) -> tuple[Any, bytes]:
    """The next value, and the state after it where that is kept. Changes nothing else: on a thread, a moment may be taken."""
    value = next(crew.values, END)
    return value, b"" if crew.keeps is None else crew.keeps()


def _take(crew: Crew, count: int, value: Any, state: bytes) -> None:
    """Take into the hand what was drawn: a worker that was cancelled while a thread drew must not lose it."""
    crew.drawn_state = state
    crew.in_hand = None if value is END else Item(value, (*crew.node.prefix, count), count)
