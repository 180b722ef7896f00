"""A source that follows a script: values, pauses, an error at a place. It has a state, as a source that is resumed needs."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from ._loop import VirtualLoop

T = TypeVar("T")


@dataclass(frozen=True)
class Pause:
    """The next draw takes this many seconds. A draw blocks, so on the loop it holds up everybody; on ``Threads()`` nobody."""

    seconds: float


class Script(Generic[T]):
    """A source for tests.

    Args:
        steps: values to give, in order; a ``Pause`` before a value makes its draw take time, virtual on a ``VirtualLoop``; an
            exception is raised in its place, each time the script comes there.
    """

    def __init__(self, steps: Sequence[T | Pause | Exception]) -> None:
        self._steps = tuple(steps)
        self._next = 0

    def draw(self) -> T:
        """Give the next value.

        Raises:
            StopIteration: the script is at its end.
            Exception: what stands there.
        """
        while self._next < len(self._steps):
            step: Any = self._steps[self._next]
            self._next += 1
            if isinstance(step, Pause):
                pause(step.seconds)
            elif isinstance(step, Exception):
                raise step
            else:
                return cast("T", step)
        raise StopIteration

    def state(self) -> int:
        """Steps of the script that are done."""
        return self._next

    def restore(self, state: int) -> None:
        """Go on after this many steps.

        Raises:
            ValueError: the script has no such place.
        """
        if not 0 <= state <= len(self._steps):
            raise ValueError(
                f"expected a place from 0 to {len(self._steps)}, got {state} (Script.restore); restore the state of this script"
            )
        self._next = state


def pause(seconds: float) -> None:
    """Block for so long: virtually on a loop in virtual time, really elsewhere."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # on a real thread
        time.sleep(seconds)
        return
    if isinstance(loop, VirtualLoop):
        loop.block(seconds)
    else:
        time.sleep(seconds)
