"""Three ways to stop a run before its end, and what each does to its workers.

Draining ends the sources, and the rest follows of itself. Suspending begins nothing more. Both act in the moment they are
called, so a source or a worker that is blocked sees it at once.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from enum import IntEnum

from ._core.state import State
from ._stacks import place_of_task
from ._workers.hands import Crew, Hands

_LOOK_S = 0.02
_DRAW_S = 1.0
"""What a thread that draws gets to hand over what it has."""


class Stop(IntEnum):
    """What was asked for; it only goes up."""

    NO = 0
    DRAIN = 1
    SUSPEND = 2
    ABORT = 3


def stop_drawing(state: State, workers: Sequence[Hands]) -> None:
    """Have the sources draw no more. One that waits for its next value is cancelled; what it has in hand is still sent.

    Versions of a cell are given as long as its writer makes some, which ends of itself.
    """
    for node in state.nodes.values():
        if node.spec.kind == "source":
            node.complete = True
    loop = asyncio.get_running_loop() if workers else None
    for hands in workers:
        if loop is None or hands.node.spec.kind != "source" or not hands.lane.open or hands.lane.state != "work":
            continue
        executor = hands.crew.executor
        if executor is None:
            hands.task.cancel()
        else:
            for call in executor.calls:
                loop.call_later(_DRAW_S, executor.give_up, call)


def shut(crews: Sequence[Crew]) -> None:
    """Let no worker begin another attempt, and every attempt under way hand over what it makes.

    Somebody who never goes stands first in the line for inputs. Since nobody takes from the edges any more, their bounds would
    hold finished work back; without them an edge behind a stage gets what each of its workers is at, and no more.
    """
    for crew in crews:
        for edge in crew.node.inputs:
            edge.consumers.waiting.appendleft(_never)
        for edge in crew.node.outputs if crew.node.spec.kind == "stage" else ():
            edge.max_items, edge.max_cost = sys.maxsize, None
            edge.producers.wake_first()


def _never() -> None:
    return None


async def winding_down(workers: Sequence[Hands], within_s: float, done: Callable[[], None]) -> None:
    """Cancel who is in no attempt, and wait for the others as long as is allowed; then call ``done``.

    A sink that takes steps may complete the one it is in from what waits before it.
    """
    loop = asyncio.get_running_loop()
    until, quiet = loop.time() + within_s, 0
    while quiet < 2 and loop.time() < until:
        quiet += 1
        for hands in workers:
            if not hands.lane.open or hands.task.done() or hands.task.cancelling():
                continue
            if hands.node.spec.kind == "source" or not (in_attempt(hands) or hands.lane.state == "output"):
                hands.task.cancel()
            elif hands.lane.state != "output":
                quiet = 0
        await asyncio.sleep(min(_LOOK_S, max(0.0, until - loop.time())))
    done()


def in_attempt(hands: Hands) -> bool:
    """Whether a worker is in user code, on the loop or on a thread. The pause before a retry is none."""
    if hands.crew.executor is not None and any(call.task is hands.task for call in hands.crew.executor.calls):
        return True
    return hands.task in hands.crew.attempts or bool(place_of_task(hands.task))
