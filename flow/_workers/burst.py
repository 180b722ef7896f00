"""Plain hand-overs of a synchronous stage, one after another in one step of the loop.

Where nothing has to be waited for, an item needs no lease, no task switch and no lock: it is taken, worked on and put on the
next edge in one synchronous stretch that nobody can cut. What is special about an item (an error, a result that is awaited or
is no plain value) ends the stretch, and the item goes on as the lease of an ordinary attempt.
"""

import asyncio
import inspect
from typing import Any

from .._context import Context
from .._core.item import Item
from .._errors import CancelledInside
from .._item import Failed, Filtered, Many
from .._lane import Stretch
from .._limits import Inline
from .._policy import Failure
from .hands import Hands, is_awaitable


class Raised:
    """An attempt ended in this error."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Unwanted:
    """An attempt was cancelled, or is not repeated, since its item is wanted no more."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


SPECIAL = frozenset({Many, Failed, Filtered, Failure, Raised, Unwanted})
"""Outcomes that are not simply handed on."""

_LONG_S = 0.001
"""A stretch that took longer lets the others have the loop, and the next one is one item long."""


class Burst:
    """The stretches of one worker.

    Args:
        hands: the worker, of a node for which ``possible`` holds.
    """

    def __init__(self, hands: Hands) -> None:
        node = hands.node
        assert node.input is not None
        self._hands, self._node, self._input, self._output = hands, node, node.input, node.output
        self._most = self._limit = node.input.max_items
        self._plain: type = type(None)  # class of the last plain result: asking a class what it is costs as much as a hand-over
        self.long = False

    @staticmethod
    def possible(hands: Hands) -> bool:
        """Whether attempts at this node can be without a wait: synchronous code on the loop that needs nothing."""
        node = hands.node
        spec, edges = node.spec, [edge for edge in (node.input, node.output) if edge is not None]
        bare = (
            spec.workers == 1
            and not spec.needs
            and spec.reads is None
            and not spec.timed
            and spec.order == "any"
            and spec.key is None
        )
        return (
            bare
            and hands.crew.notes is None
            and not asynchronous(spec.stage)
            and isinstance(spec.placement, Inline)
            and all(edge.max_cost is None for edge in edges)
        )

    def run(self) -> tuple[Item, Any] | None:
        """Handle what waits, as far as there is room for the results.

        Returns:
            A leased item and its outcome where that is special; ``None`` where all is done that could be.
        """
        self.long = False
        hands, node, channel, output = self._hands, self._node, self._input, self._output
        buffer, work, desk, plain = channel.buffer, node.spec.stage, hands.desk, self._plain
        most = min(len(buffer), self._limit) if output is None else min(len(buffer), self._limit, output.space)
        if most <= 0 or node.complete:
            return None
        position = 0 if output is None else output.put_count
        clock, groups, ages = hands.lane.clock, node.groups, node.admission if output is None else None
        values: list[Any] | None = [] if hands.host.watched else None
        tally = hands.host.tally if output is None else None
        taken: list[Any] | None = None if tally is None else []
        began, done, special, quick = clock(), 0, None, 0
        last, quick_s = began, Stretch.QUICK_S
        stretch = hands.lane.stretch(began, buffer[0].path)
        try:
            while done < most:
                item = buffer[0]
                if groups is not None and item.member is not None and item.birth not in groups.open:
                    break
                context = Context(desk, item, item.attempt)
                if ages is not None:
                    context.lag = ages.lag(item.version)
                try:
                    result = work(item.value, context)
                except (Exception, asyncio.CancelledError) as error:
                    special = Raised(CancelledInside(node.spec.name) if isinstance(error, asyncio.CancelledError) else error)
                    break
                if result.__class__ is not plain:
                    if result.__class__ in SPECIAL or is_awaitable(result):
                        special = result
                        break
                    plain = result.__class__
                if stretch is not None:
                    now = clock()
                    if now - last > quick_s or stretch.within:
                        stretch.slow(item.path, last, now, quick, buffer[1].path if len(buffer) > 1 else ())
                        quick = 0
                    else:
                        quick += 1
                    last = now
                buffer.popleft()
                if values is not None:
                    values.append(result)
                if taken is not None:
                    taken.append(item.value)
                if output is not None:
                    item.value, item.position = result, position
                    if item.attempt:
                        item.attempt = item.retries = 0
                    output.buffer.append(item)
                    position += 1
                done += 1
        finally:
            self._plain = plain
            if stretch is not None:
                if special is not None:
                    now = clock()
                    stretch.slow(buffer[0].path, last, now, quick, ())
                    quick, last = 0, now
                hands.lane.end_stretch(stretch.end(last, quick))
            self._account(done, values, began)
            if tally is not None and taken:
                tally.ended(node.spec.name, taken, None)
        return None if special is None else (self._lease(), special)

    def _account(self, done: int, values: list[Any] | None, began: float) -> None:
        """Count what the stretch did."""
        node, hands = self._node, self._hands
        self.long = hands.lane.clock() - began > _LONG_S
        self._limit = 1 if self.long else self._most
        if done:
            node.meter.finished += done
            node.budget.kept(done)
            if self._output is not None:
                self._output.added(done)
            self._input.went(done)
            if values is not None:
                hands.host.committed(node.spec.name, values)

    def _lease(self) -> Item:
        item = self._input.take()
        item.seen = None
        return item


def asynchronous(stage: Any) -> bool:
    """Whether a stage, a function or an object that is called, is declared with ``async def``."""
    return inspect.iscoroutinefunction(stage) or inspect.iscoroutinefunction(getattr(stage, "__call__", None))  # noqa: B004
