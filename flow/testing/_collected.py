"""A sink that keeps what arrives: as a plain sink item by item, as a collector in steps."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from .._context import Context

T = TypeVar("T")


@dataclass(frozen=True)
class Arrival(Generic[T]):
    """A value that reached a sink.

    Attributes:
        value: what came.
        path: identity of the item.
        birth: birth number of its group, or of the item.
        retry: recorded failures of the item before.
        lag: versions between its dispatch and the step that took it; ``None`` where it carries no version.
        step: number of the step that took it, from 0; ``None`` in a plain sink.
        at_s: loop time.
    """

    value: T
    path: tuple[int, ...]
    birth: int
    retry: int
    lag: int | None
    step: int | None
    at_s: float


class Collected(Generic[T]):
    """A sink for tests. Give it to one node, as a plain sink or with ``collect=``.

    Args:
        result: what a step gives to the feedback edge, from the number of steps that are complete; by default that number.

    Attributes:
        arrivals: what came, in order. Items of a step that was given up are not among them.
        steps: steps completed.
    """

    def __init__(self, result: Callable[[int], Any] = lambda steps: steps) -> None:
        self.arrivals: list[Arrival[T]] = []
        self.steps = 0
        self._result = result
        self._step: list[Arrival[T]] = []

    @property
    def values(self) -> list[T]:
        """The values that came, in order."""
        return [arrival.value for arrival in self.arrivals]

    def __call__(self, value: T, context: Context) -> None:
        """Keep a value, as a plain sink."""
        self.arrivals.append(_arrival(value, context, None))

    def add(self, value: T, context: Context) -> None:
        """Keep a value once its step is complete."""
        self._step.append(_arrival(value, context, self.steps))

    def finish(self, context: Context) -> Any:
        """Complete a step."""
        self.arrivals += self._step
        self._step = []
        self.steps += 1
        return self._result(self.steps)


def _arrival(value: T, context: Context, step: int | None) -> Arrival[T]:
    now = asyncio.get_running_loop().time()
    return Arrival(value, context.path, context.birth, context.retry, context.lag, step, now)
