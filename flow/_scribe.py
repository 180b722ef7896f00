"""Writes into the trace what happens in a graph and is no worker's time: groups, versions, what is dropped, failures, stalls.

Moments are on one track, ``NAME events``. An open group is a slice on a lane of its own, from its birth to its close. Drops may
come by the thousand: of each kind the first in a tenth of a second is a moment, and the others are told together at its end.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ._arrows import flow_id, step_id, version_id
from ._core.groups import Closed
from ._core.item import Item
from ._core.state import State
from ._errors import format_path
from .trace import Lanes, Recorder


class Scribe:
    """The scribe of one run. An ``Observer`` of its state.

    Args:
        graph: name of the graph.
        run: number of the run in its process.
        recorder: where it writes.

    Attributes:
        recorder: the same.
    """

    def __init__(self, graph: str, run: int, recorder: Recorder) -> None:
        self._graph, self._run, self.recorder = graph, run, recorder
        self._lanes: dict[str, Lanes] = {}
        self._groups: dict[tuple[str, int], int] = {}  # track of each open group, by barrier and birth
        self._more: dict[
            tuple[str, str], list[Any]
        ] = {}  # drops by node and reason: how many since the latest moment, the last

    @property
    def parent(self) -> int:
        """The graph's own track."""
        return self.recorder.track(f"graph {self._graph}")

    def instant(self, name: str, args: Mapping[str, Any], flows: Sequence[int] = ()) -> None:
        """A moment of the graph."""
        self.recorder.instant(self.recorder.track(f"{self._graph} events", self.parent), name, _now(), args, flows)

    def at(self, name: str, node: str, item: Item, args: Mapping[str, Any]) -> None:
        """A moment of an item at a node."""
        told = {"node": node, "item": format_path(item.path), **args}
        self.instant(name, told, (flow_id(self._run, item.path),))

    def begin(self, state: State) -> int:
        """Show the groups that are open in a run which goes on; gives the graph's own track."""
        for name, node in state.nodes.items():
            if node.spec.kind == "group" and node.groups is not None:
                for birth, group in node.groups.open.items():
                    self.opened(name, birth, group.origin, group.size)
        return self.parent

    # --- as the ``Observer`` ---

    def opened(self, barrier: str, birth: int, origin: Item, size: int) -> None:
        """See ``Observer``."""
        if barrier not in self._lanes:
            rows = self.recorder.track(f"{barrier} groups", self.parent)
            self._lanes[barrier] = Lanes(self.recorder, f"{barrier} groups", rows)
        track = self._groups[barrier, birth] = self._lanes[barrier].take()
        paths = [origin.path, *((*origin.path, index) for index in range(size))]
        flows = [flow_id(self._run, path) for path in paths]
        self.recorder.begin(track, "group", _now(), {"birth": birth, "size": size}, flows)

    def closed(self, barrier: str, closed: Closed) -> None:
        """See ``Observer``."""
        track = self._groups.pop((barrier, closed.birth))
        gathered = None if closed.item is None else closed.item.value
        args: dict[str, Any] = {"members": closed.members, "reason": closed.reason if gathered is None else gathered.closed}
        if gathered is not None:
            args["missing"] = len(gathered.failures)
        if closed.last is not None:
            args["last"] = closed.last
        self.recorder.end(track, _now(), args)
        self._lanes[barrier].give(track)
        if gathered is None and closed.origin is not None:
            self.dropped(barrier, closed.origin, closed.reason)

    def dropped(self, node: str, item: Item, reason: str) -> None:
        """See ``Observer``."""
        more = self._more.get((node, reason))
        if more is None:
            self._more[node, reason] = [0, item]
            self.at("dropped", node, item, {"reason": reason})
        else:
            more[0], more[1] = more[0] + 1, item

    def tick(self) -> None:
        """Tell of the drops since the last time that were not told one by one."""
        for (node, reason), (count, item) in self._more.items():
            if count:
                self.at("dropped", node, item, {"reason": reason, "count": count})
        self._more.clear()

    def close(self) -> None:
        """The run is over: nothing of it goes on in a later one that has the same trace."""
        self.tick()
        for (barrier, _), track in self._groups.items():
            self.recorder.end(track, _now(), {"reason": "the run ended"})
            self._lanes[barrier].give(track)
        self._groups.clear()

    # --- versions ---

    def published(self, cell: str, version: int, node: str, step: int) -> None:
        """A step gave a cell another version."""
        flows = (step_id(self._run, node, step), version_id(self._run, cell, version))
        self.instant("published", {"cell": cell, "version": version, "step": step}, flows)

    def in_force(self, cell: str, version: int) -> None:
        """Readers of a cell have this version from now on."""
        self.instant("in force", {"cell": cell, "version": version}, (version_id(self._run, cell, version),))

    def load_begins(self, cell: str, version: int) -> None:
        """A version is on its way to whoever uses it."""
        track = self.recorder.track(f"{cell} (load)")
        self.recorder.begin(track, "load", _now(), {"version": version}, (version_id(self._run, cell, version),))

    def load_ends(self, cell: str) -> None:
        """It is there, or the load failed."""
        self.recorder.end(self.recorder.track(f"{cell} (load)"), _now())


def _now() -> int:
    return int(asyncio.get_running_loop().time() * 1e9)
