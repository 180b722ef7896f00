"""What the stages of random graphs do. It is a function of the graph's seed and of who the item is, never of time.

So an interpreter can say what becomes of each item, whatever the schedule. What the stages saw of the schedule they write into
a diary, for the orders that a graph promises.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal, Protocol, TypeAlias, cast

from .._context import Context
from .._item import Filtered, Gathered, Many
from .._types import united
from ._chance import chance, number, pareto
from ._collected import Collected
from ._script import pause

Path: TypeAlias = tuple[int, ...]
Fate: TypeAlias = Literal["raise", "filter"] | int
"""What an attempt does: raise, filter, or give this many outputs."""

HANG_S = 10_000.0
"""What hangs until its deadline would take so long."""


class Acting(Protocol):
    """A stage as its work needs it: see ``Step``."""

    @property
    def name(self) -> str: ...
    @property
    def spread(self) -> bool: ...
    @property
    def hangs(self) -> bool: ...
    @property
    def key(self) -> int | None: ...
    def fate(self, seed: int, path: Path, retry: int) -> Fate:
        """Tell what an attempt does."""
        ...


class Diary:
    """Where the stages and sinks of a run saw each item, and whether what must not overlap did.

    Attributes:
        places: by node and path, the place of the item on the edge before the node; -1 for a path that came there twice.
        keys: by node with a key and path, the key.
        faults: keys of which two items were handled at once, or one before an older one; attempts that had the same identity.
    """

    def __init__(self) -> None:
        self.places: dict[str, dict[Path, int]] = {}
        self.keys: dict[str, dict[Path, int]] = {}
        self.faults: list[str] = []
        self._busy: dict[tuple[str, int], Path] = {}
        self._last: dict[tuple[str, int], int] = {}
        self._begun: set[tuple[str, Path, int, int]] = set()

    def saw(self, context: Context) -> int:
        """Note that an item came to a node; gives its place."""
        position = context._item.position  # pyright: ignore[reportPrivateUsage]
        places = self.places.setdefault(context.node, {})
        places[context.path] = position if places.get(context.path, position) == position else -1
        return position

    def begin(self, context: Context, key: int | None) -> None:
        """Note that an attempt began."""
        position = self.saw(context)
        identity = (*context.key, context.attempt)
        if identity in self._begun:
            self.faults.append(f"{context} began twice")
        self._begun.add(identity)
        if key is None:
            return
        own = (context.node, key)
        self.keys.setdefault(context.node, {})[context.path] = key
        if own in self._busy:
            self.faults.append(f"{context} began while {self._busy[own]} of its key was handled")
        if self._last.get(own, -1) > position:
            self.faults.append(f"{context} began after a later one of its key")
        self._busy[own], self._last[own] = context.path, position

    def end(self, context: Context, key: int | None) -> None:
        """Note that an attempt ended, however it did."""
        if key is not None:
            self._busy.pop((context.node, key), None)


def plain(value: Any) -> Any:
    """A value without what depends on the schedule: of what was gathered, the members, and theirs."""
    return tuple(map(plain, cast("Gathered[Any]", value).members)) if isinstance(value, Gathered) else value


def key_of(seed: int, name: str, value: Any, count: int) -> int:
    """One of this many keys, which the value decides."""
    return int(chance(seed, number(name), plain(value), 8) * count)


def cost_of(value: Any) -> float:
    """Cost of a value on an edge: 1, 2 or 3."""
    return 1.0 + int(chance(plain(value), 9) * 3)


def waits(step: Acting, seed: int, diary: Diary) -> Callable[[Any, Context], Awaitable[Any]]:
    """Work that awaits timers."""
    name = number(step.name)

    async def work(value: Any, context: Context) -> Any:
        key = None if step.key is None else key_of(seed, step.name, value, step.key)
        diary.begin(context, key)
        try:
            await asyncio.sleep(seconds(seed, name, context.path, context.retry, context.attempt))
            if step.hangs and step.fate(seed, context.path, context.retry) == "raise":
                await asyncio.sleep(HANG_S)
            return _outcome(step, seed, value, context)
        finally:
            diary.end(context, key)

    return work


def blocks(step: Acting, seed: int, diary: Diary) -> Callable[[Any, Context], Any]:
    """Synchronous work, of no time mostly."""
    name = number(step.name)

    def work(value: Any, context: Context) -> Any:
        key = None if step.key is None else key_of(seed, step.name, value, step.key)
        diary.begin(context, key)
        try:
            if chance(seed, name, context.path, context.attempt, 10) < 0.1:
                pause(0.01)
            return _outcome(step, seed, value, context)
        finally:
            diary.end(context, key)

    return work


def typed(work: Callable[[Any, Context], Any], depth: int, *, spread: bool) -> Callable[[Any, Context], Any]:
    """Annotate a stage with what it takes and gives where items were gathered so often, so that a graph of it can be saved."""
    value: Any = int | Path
    for _ in range(depth):
        value = Gathered[value]
    gives = (value, Many[value], Filtered) if spread else (value, Filtered)
    work.__annotations__ = {"value": value, "context": Context, "return": united(gives)}
    return work


def _outcome(step: Acting, seed: int, value: Any, context: Context) -> Any:
    fate = step.fate(seed, context.path, context.retry)
    if fate == "raise":
        raise ValueError("drawn")
    if fate == "filter":
        return Filtered("drawn")
    kept: Any = cast("Any", value) if isinstance(value, Gathered) else context.path
    return Many([kept] * fate) if step.spread else kept


def seconds(seed: int, *key: object) -> float:
    """How long something takes: no time at all, less than a second, or a heavy tail."""
    kind = chance(seed, key, 3)
    if kind < 0.5:
        return 0.0
    share = chance(seed, key, 4)
    return share if kind < 0.75 else min(pareto(share, 1.0), 100.0)


def loader(seed: int, most_s: float) -> Callable[[int, int], Awaitable[None]] | None:
    """What takes up to so long until a version is in force."""

    async def load(value: int, version: int) -> None:
        await asyncio.sleep(chance(seed, version, 5) * most_s)

    return load if most_s else None


class SlowSink:
    """Takes its time before it hands a value to the sink inside."""

    def __init__(self, sink: Collected[Any], seed: int, diary: Diary) -> None:
        self._sink, self._seed, self._diary = sink, seed, diary

    async def __call__(self, value: Any, context: Context) -> None:
        self._diary.saw(context)
        await asyncio.sleep(chance(self._seed, context.path, 6) // 0.5 / 2)
        self._sink(value, context)

    async def add(self, value: Any, context: Context) -> None:
        """Take an item of the step under way."""
        self._diary.saw(context)
        await asyncio.sleep(chance(self._seed, context.path, 6) // 0.5 / 5)
        self._sink.add(value, context)

    async def finish(self, context: Context) -> int:
        """Complete the step."""
        await asyncio.sleep(chance(self._seed, context.path, 7) * 3)
        return self._sink.finish(context)
