"""The worker of a sink that takes its input in steps. Its items stay leased until the step is complete.

A cancel during ``add`` gives the step up: what was added changes nothing before ``finish``, and the items return. A ``finish``
that came to its end all the same, as on a thread, has changed the stage for good: given back, its items would be applied twice.
So that step is committed and published first, and the cancellation goes on after it.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from .._arrows import step_id
from .._core.channel import Channel
from .._core.item import Item
from .._core.node import NodeState
from .._errors import StageFailed, format_path
from .._recalling import StepNotes
from .hands import Hands


class CollectorWorker:
    """Worker of a collecting sink."""

    def __init__(self, hands: Hands) -> None:
        self._hands, self._state, self._node = hands, hands.state, hands.node

    async def run(self) -> None:
        """Complete steps until there are enough, or the input has ended."""
        assert self._node.input is not None
        line = self._node.input.consumers
        line.join(self._hands.parker)  # always the only consumer: stays in line to hear of items
        listeners = [] if self._node.admission is None else self._node.admission.listeners
        listeners.append(self._hands.parker)
        try:
            await self._take_steps()
            self._state.line_ended(self._node)
            await self._discard_rest(self._node.input)
        finally:
            listeners.remove(self._hands.parker)
            line.leave(self._hands.parker)

    async def _take_steps(self) -> None:
        node, collect = self._node, self._node.spec.collect
        assert collect is not None
        while collect.steps is None or node.meter.steps < collect.steps:  # a run that goes on has some already
            items: list[Item] = []
            try:
                await self._fill_step(items, collect.items)
                if len(items) < collect.items and (collect.end == "drop" or not items):
                    for item in items:
                        self._state.drop(node, item, "incomplete step")
                    break
                value = await self._call_collector("finish", items, self._hands.context(items[-1]))
            except BaseException:
                self._state.give_back_step(node, [item for item in items if item.leased])
                raise
            self._state.commit_step(node, items)
            self._hands.host.published(node.spec.name, value)
            if isinstance(self._hands.crew.notes, StepNotes):
                self._hands.crew.notes.stepped(items)
            if not self._hands.cancelled:
                await self._hands.host.keep(self._hands)
            if self._hands.cancelled:
                raise asyncio.CancelledError
        if collect.steps is not None:
            self._hands.host.finished(node)

    async def _fill_step(self, items: list[Item], wanted: int) -> None:
        node = self._node
        assert node.input is not None
        while len(items) < wanted:
            index = self._choose(node)
            if index is not None:
                item = self._state.take_for_step(node, index)
                items.append(item)
                await self._call_collector("add", [item], item.value, self._hands.context(item))
                if self._hands.cancelled:
                    raise asyncio.CancelledError
            elif node.input.closed and not len(node.input):
                return
            else:
                straggler = len(node.input) > 0
                self._hands.lane.enter("input", f"{node.input.name}{' (the one that must go next)' if straggler else ''}")
                await self._hands.parker.wait()

    def _choose(self, node: NodeState) -> int | None:
        """Index of the item the step takes next, stale ones dropped first."""
        assert node.input is not None
        if node.admission is None:
            return 0 if len(node.input) else None
        while True:
            waiting = node.input.buffer
            stale = next((i for i, item in enumerate(waiting) if node.admission.too_old(item.version)), None)
            if stale is None:
                return node.admission.choose([(item.birth, item.version) for item in waiting])
            self._state.drop(node, self._state.lease(node, stale), "stale")

    async def _call_collector(self, method: str, items: Sequence[Item], *arguments: Any) -> Any:
        """Call it for these items: the one that is added, or all of the step."""
        stage, item, ids = self._node.spec.stage, items[-1], list[int]()
        function = stage.add if method == "add" else stage.finish
        args: dict[str, Any] = {"call": method, "birth": item.birth}
        if method == "finish":
            step = args["step"] = self._node.meter.steps + 1
            ids.append(step_id(self._hands.host.number, self._node.spec.name, step))
        self._hands.lane.work_on([each.path for each in items], args, f"{method} {format_path(item.path)}", ids)
        try:
            return await self._hands.call(function, *arguments)
        except Exception as error:
            raise StageFailed(self._node.spec.name, item.path, item.retry, item.attempt, error) from error

    async def _discard_rest(self, channel: Channel) -> None:
        while not channel.ended:
            if len(channel):
                self._state.drop(self._node, self._state.lease(self._node), "surplus")
            else:
                self._hands.lane.enter("input", channel.name)
                await self._hands.parker.wait()
