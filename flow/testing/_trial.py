"""One trial of a stage: some inputs go through it in a real graph in virtual time, and what is seen is written down."""

import asyncio
import copy
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from .._context import Context, Versioned
from .._core.item import Item
from .._graph import Graph
from .._policy import Emit
from ._attempt import CURRENT, Attempt, drive, going_on, note_tasks
from ._collected import Collected
from ._script import Script
from ._simulate import simulate


@dataclass(frozen=True)
class Cut:
    """Where a trial cancels the first attempt at an input.

    Attributes:
        index: of the input; ``None`` for every one.
        at: number of the await, from 1; ``None`` when the stage has returned and the engine has not yet taken the result.
        woken: when what it waits for is there, not while it waits.
    """

    index: int | None
    at: int | None
    woken: bool = False

    def __str__(self) -> str:
        if self.at is None:
            return "cancelled after it had returned, before the result was taken"
        return f"cancelled at await {self.at}, {'just woken from it' if self.woken else 'while it waited'}"


@dataclass
class Trial:
    """What was seen.

    Attributes:
        before: the inputs as they were.
        after: the same objects after the run.
        attempts: every attempt, in the order of their beginnings.
        outputs: what came out, by index of the input.
        entered: times the stage was opened.
        exited: times it was closed.
        closing: what was wrong with its end: what was there after it, or what it raised.
        error: what ended the run, where it did not complete.
    """

    before: Sequence[Any]
    after: Sequence[Any]
    attempts: list[Attempt] = field(default_factory=list[Attempt])
    outputs: dict[int, list[Any]] = field(default_factory=dict[int, list[Any]])
    entered: int = 0
    exited: int = 0
    closing: tuple[str, ...] = ()
    error: Exception | None = None

    def first(self, index: int) -> Attempt:
        """First attempt at an input."""
        return next(attempt for attempt in self.attempts if attempt.index == index)


class GivenUpError(RuntimeError):
    """The source of a trial that is to fail."""


@dataclass(frozen=True)
class Raised:
    """Stands for an output where the stage raised."""

    kind: str


def run_trial(
    make: Callable[[], Any],
    values: Sequence[Any],
    *,
    order: Sequence[int] | None = None,
    cut: Cut | None = None,
    fails: bool = False,
    reads: Any = None,
    pools: Mapping[str, int] | None = None,
) -> Trial:
    """Send inputs through a new stage.

    Args:
        make: makes the stage.
        values: the inputs; copies of them are used.
        order: indices of the inputs in the order in which they come; each keeps its identity.
        cut: what is cancelled.
        fails: the source raises after the last input, so that the run ends with an error.
        reads: what ``context.read`` gives.
        pools: units of the pools that the stage may hold.
    """
    order = range(len(values)) if order is None else order
    used = copy.deepcopy(list(values))
    trial = Trial(values, used)
    probe, sink = _Probe(make(), trial, cut, reads), Collected[Any]()
    graph = Graph("trial", pools=pools)
    script: list[Any] = [(index, used[index]) for index in order]
    source: Script[Any] = Script([*script, GivenUpError("the run is to fail")] if fails else script)
    inputs = graph.source("inputs", source)
    final = Emit(lambda value, failure, context: Raised(failure.kind), 10**6, 10**6)
    stage = graph.stage("stage", probe, on_error=final, budget=None)
    graph.edge(inputs, stage)
    graph.edge(stage, graph.sink("outputs", sink))
    was_open = _open_outside()
    try:
        simulate(graph)
    except Exception as error:
        trial.error = error
    more = [
        f"{now - was} more {what} than before"
        for what, now, was in zip(_OUTSIDE, _open_outside(), was_open, strict=True)
        if now > was
    ]
    trial.closing += tuple(more)
    trial.outputs = {index: [] for index in order}
    for arrival in sink.arrivals:
        trial.outputs[order[arrival.path[0]]].append(arrival.value)
    return trial


_OUTSIDE = ("threads", "open files")


def _open_outside() -> tuple[int, int]:
    """Threads and open files of this process; 0 files where the system does not say."""
    return threading.active_count(), len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


class _Probe:
    """Stands in the graph where the stage would."""

    def __init__(self, stage: Any, trial: Trial, cut: Cut | None, reads: Any) -> None:
        self._stage, self._trial, self._cut, self._reads = stage, trial, cut, reads
        self._holds = isinstance(stage, AbstractAsyncContextManager)
        self._background: list[asyncio.Task[Any]] = []

    async def __aenter__(self) -> None:
        note_tasks(asyncio.get_running_loop())
        if self._holds:
            self._trial.entered += 1
            before = CURRENT.set(self._background)
            await self._stage.__aenter__()
            CURRENT.reset(before)

    async def __aexit__(self, *error: Any) -> None:
        if not self._holds:
            return
        self._trial.exited += 1
        faults: list[str] = []
        try:
            swallowed = await self._stage.__aexit__(*error)
            faults += ["the error of the run kept from going on"] if swallowed and error[0] is not None else []
        except Exception as second:
            faults.append(f"{type(second).__name__}: {second}")
        faults += [f"the task {name} going on" for name in going_on(self._background)]
        self._trial.closing += tuple(faults)

    async def __call__(self, indexed: tuple[int, Any], context: Context) -> Any:
        index, value = indexed
        seen = Attempt(index, context.attempt)
        self._trial.attempts.append(seen)
        cut = self._cut
        cut_here = cut is not None and context.attempt == 0 and cut.index in (None, index)
        at = cut.at if cut is not None and cut_here else None
        told = _named_for(context, index, value, self._reads)
        result = await drive(self._stage, value, told, seen, at, woken=cut is not None and cut.woken)
        if cut is not None and cut_here and cut.at is None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
        return result


def _named_for(context: Context, index: int, value: Any, reads: Any) -> Context:
    """The context of an input as it would be where the inputs come in their own order."""
    desk = replace(context._desk, read=lambda: Versioned(reads, 0))  # pyright: ignore[reportPrivateUsage] - made as the engine does
    return Context(desk, Item(value, (index,), index), context.attempt, None, None, context.deadline_s)
