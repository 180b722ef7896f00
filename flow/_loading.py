"""Feedback at work: what a sink published is loaded by whoever uses it, and then in force. The newest first."""

import asyncio
from collections.abc import Callable
from typing import Any

from ._core.state import State
from ._errors import StageFailed
from ._park import Parker
from ._scribe import Scribe
from ._work import Holding, Waiting
from .saving._points import reach


class Loading:
    """The feedback edges of one run.

    Args:
        state: its moment.
        scribe: writes loads into the trace; ``None`` where nobody records.
        on_idle: called when a cell has loaded all that was published.

    Attributes:
        under_way: cells that are published and not in force.
    """

    def __init__(self, state: State, scribe: Scribe | None, on_idle: Callable[[], None]) -> None:
        self._state, self._scribe, self._on_idle = state, scribe, on_idle
        self._spec = state.plan.spec
        self._parkers = {feedback.cell: Parker() for feedback in self._spec.feedback}
        self.under_way: set[str] = set()
        self._loads: dict[str, tuple[int, float]] = {}

    async def start(self) -> None:
        """Load the initial values and put them in force, as version 0; in a run that goes on, as the newest ever published.

        Where that run had an older version in force that something still holds, it is put in force first, and the newest
        follows as it would have.
        """
        for feedback in self._spec.feedback:
            cell = self._state.cells[feedback.cell]
            newest, version = cell.published, cell.published
            initial = value = feedback.initial() if callable(feedback.initial) else feedback.initial
            owner = self._owner(feedback.cell)
            held = owner.held if isinstance(owner, Holding) else None
            if held is not None:
                version, value = held
            if value is not None:
                await self._load(feedback.cell, value, version)
            cell.start(value, version)
            self._return_tickets(feedback.cell, version)
            if version < newest:
                cell.published = newest - 1
                self._publish(feedback.cell, initial)

    def publish(self, node: str, value: Any) -> dict[str, int]:
        """A sink completed a step: its result is published on its feedback edges.

        Returns:
            The versions, by cell.
        """
        versions: dict[str, int] = {}
        for feedback in self._spec.feedback:
            if feedback.source == node:
                versions[feedback.cell] = self._publish(feedback.cell, value)
        return versions

    def _publish(self, name: str, value: Any) -> int:
        self.under_way.add(name)
        self._parkers[name]()
        return self._state.cells[name].publish(value)

    def _owner(self, name: str) -> Any:
        """The object that loads the values of a cell."""
        load = self._spec.cells[name].load
        return getattr(load, "__self__", load)

    async def serve(self, name: str) -> None:
        """Put published values of one cell in force until cancelled."""
        cell = self._state.cells[name]
        while True:
            await self._parkers[name].wait()
            while (pending := cell.pending()) is not None:
                version, value = pending
                reach("swap.begin")
                await self._load(name, value, version)
                reach("swap.loaded")
                cell.enforce(version, value)
                if self._scribe is not None:
                    self._scribe.in_force(name, version)
                self._return_tickets(name, version)
            self.under_way.discard(name)
            self._on_idle()

    def told(self, now: float) -> list[tuple[str, str]]:
        """Which cells are being loaded, and what each load waits for, as far as it tells: names and texts for a report."""
        lines: list[tuple[str, str]] = []
        for name, (version, since) in self._loads.items():
            owner = self._owner(name)
            waiting = owner.waiting if isinstance(owner, Waiting) else None
            lines.append((f"cell {name}", f"version {version} is being loaded, since {now - since:,.0f} s{_why(waiting)}"))
        return lines

    def _return_tickets(self, name: str, version: int) -> None:
        sinks = [feedback.source for feedback in self._spec.feedback if feedback.cell == name]
        for admission in {id(a): a for sink in sinks if (a := self._state.nodes[sink].admission) is not None}.values():
            admission.enforce(version)

    async def _load(self, name: str, value: Any, version: int) -> None:
        """Have whoever uses the values of a cell take over this one."""
        load = self._spec.cells[name].load
        began = asyncio.get_running_loop().time()
        self._loads[name] = (version, began)
        if self._scribe is not None:
            self._scribe.load_begins(name, version)
        try:
            if load is not None:
                await load(value, version)
        except Exception as error:
            raise StageFailed(f"{name} (load of version {version})", (), 0, 0, error) from error
        finally:
            del self._loads[name]
            if self._scribe is not None:
                self._scribe.load_ends(name)


def _why(waiting: str | None) -> str:
    return "" if waiting is None else f": {waiting}"
