"""Running a plan: opens the stages, starts the workers, keeps them alive, stops them, and tells how it went.

Workers are plain asyncio tasks held here, not children of a task group: a worker that dies of a stray cancellation is started
again, and the first error of any of them becomes the error of the run, alone and with its cause.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Protocol, cast

from ._core.state import NodeState, State
from ._errors import LedgerError, StageFailed
from ._lag import LoopLag
from ._lane import Lane
from ._limits import Threads
from ._park import Deadlines, Parker
from ._plan import Plan
from ._stall import watch
from ._summary import Status, Summary, summarise
from ._workers.hands import Crew, Hands
from ._workers.source import drawing
from ._workers.worker import work
from .trace import Recorder

_COUNTERS_EVERY_S = 0.1


class Watcher(Protocol):
    """Somebody who looks on. Called on the loop, so it must be quick; an exception ends the run."""

    def committed(self, node: str, values: Sequence[Any]) -> None:
        """Values left a node."""
        ...

    def reported(self, node: str, row: Mapping[str, Any]) -> None:
        """A stage handed in a row of metrics."""
        ...


class Run:
    """One execution of a plan.

    Args:
        plan: a built graph.
        recorder: where the trace goes; ``None`` for no trace.
        watchers: who looks on.
        stall_s: seconds without a commit after which the run fails; ``None`` waits for ever.
        lag: measures the loop while the graph is at work; ``None`` to leave it alone.

    Example:
        ``summary = await Run(graph.build()).finish()``
    """

    def __init__(
        self,
        plan: Plan,
        *,
        recorder: Recorder | None = None,
        watchers: Sequence[Watcher] = (),
        stall_s: float | None = 600.0,
        lag: LoopLag | None = None,
    ) -> None:
        self.plan, self.state = plan, State(plan)
        self._recorder, self._watchers, self._stall_s = recorder, tuple(watchers), stall_s
        self._lag = lag
        self._parkers: list[Parker] = []
        self._lanes: list[Lane] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._loaders: dict[str, Parker] = {}
        self._loading: set[str] = set()
        self._error: BaseException | None = None
        self._stop: Status | None = None
        self._over: asyncio.Future[None] | None = None
        self._workers = 0
        self._began: float | None = None
        self._ended: float | None = None

    async def finish(self) -> Summary:
        """Run to the end.

        Returns:
            The summary, with status ``completed``, or ``suspended`` after ``suspend``.

        Raises:
            StageFailed: a stage failed and its policy is to end the run.
            BudgetExceeded: a stage dropped too many items.
            Stalled: nothing moved for too long.
            LedgerError: the counts do not add up; a fault of the engine.
            RuntimeError: the run was finished before.
        """
        if self._over is not None:
            raise RuntimeError("expected a new run, got one that was started before; make another with Run(plan)")
        self._over = asyncio.get_running_loop().create_future()
        if self._stop is not None:
            self._over.set_result(None)
        try:
            async with AsyncExitStack() as stack:
                await self._open(stack)
                await self._work(stack)
        except Exception as error:
            if self._error is None:
                raise
            self._error.add_note(f"and closing a stage failed: {type(error).__name__}: {error}")
        if self._error is not None:
            raise self._error
        summary = self.summary()
        if not summary.balanced:
            raise LedgerError("the counts of the run do not add up: " + "; ".join([*summary.faults, str(summary.leftovers)]))
        return summary

    def suspend(self) -> None:
        """Stop where it stands: running attempts are cancelled and their items given back. Returns at once."""
        self._end("suspended")

    def summary(self) -> Summary:
        """Counts so far."""
        if self._began is None:
            return summarise(self.state, None, 0.0)
        now = asyncio.get_running_loop().time() if self._ended is None else self._ended
        status: Status | None = None if self._ended is None else ("failed" if self._error else self._stop)
        return summarise(self.state, status, now - self._began)

    # --- what workers need of the run ---

    def parker(self) -> Parker:
        """Make a parker that is woken when the run is complete."""
        parker = Parker()
        self._parkers.append(parker)
        return parker

    def committed(self, node: str, values: Sequence[Any]) -> None:
        """Pass on to the watchers."""
        for watcher in self._watchers:
            watcher.committed(node, values)

    def reported(self, node: str, row: Mapping[str, Any]) -> None:
        """Pass on to the watchers, on the loop: rows may come from a stage's thread."""
        loop = self._over.get_loop() if self._over is not None else asyncio.get_running_loop()
        for watcher in self._watchers:
            loop.call_soon_threadsafe(self._tell, watcher, node, dict(row))

    def _tell(self, watcher: Watcher, node: str, row: Mapping[str, Any]) -> None:
        try:
            watcher.reported(node, row)
        except Exception as error:
            self._fail(error)

    def instant(self, name: str, args: dict[str, Any]) -> None:
        """Mark a moment on the graph's own track."""
        if self._recorder is not None:
            track = self._recorder.track(f"{self.plan.spec.name} events")
            self._recorder.instant(track, name, int(asyncio.get_running_loop().time() * 1e9), args)

    def published(self, node: str, value: Any) -> None:
        """A sink completed a step: its feedback edges publish the result."""
        for feedback in self.plan.spec.feedback:
            if feedback.source == node:
                version = self.state.cells[feedback.cell].publish(value)
                self.instant(f"{feedback.cell} published", {"version": version})
                self._loading.add(feedback.cell)
                self._loaders[feedback.cell]()

    def finished(self, sink: NodeState) -> None:
        """A sink has all its steps: what is still on its way there is surplus."""
        self.state.complete(sink)
        for parker in self._parkers:
            parker()

    # --- opening and closing ---

    async def _open(self, stack: AsyncExitStack) -> None:
        opened: set[int] = set()
        for node in sorted(self.state.nodes.values(), key=lambda n: -n.depth):
            if id(node.spec.stage) not in opened:
                opened.add(id(node.spec.stage))
                await _enter(stack, node.spec.stage)
        for feedback in self.plan.spec.feedback:
            initial = feedback.initial() if callable(feedback.initial) else feedback.initial
            self.state.cells[feedback.cell].start(initial)

    async def _work(self, stack: AsyncExitStack) -> None:
        loop = asyncio.get_running_loop()
        assert self._over is not None
        self._began = loop.time()
        deadlines: list[Deadlines] = []
        parent = None if self._recorder is None else self._recorder.track(f"graph {self.plan.spec.name}")
        for node in self.state.nodes.values():
            executor = None
            if isinstance(node.spec.placement, Threads):
                executor = stack.enter_context(ThreadPoolExecutor(node.spec.workers, f"headrace-{node.spec.name}"))
            crew = Crew(node, Deadlines(node.spec.deadline_s), executor, _drawing(node))
            node.on_turn = _waker(crew)
            deadlines.append(crew.deadlines)
            self._hire(crew, parent)
        side = [self._side(self._load(feedback.cell)) for feedback in self.plan.spec.feedback]
        if self._stall_s is not None:
            side.append(self._side(watch(self.state, self._lanes, lambda: bool(self._loading), self._stall_s)))
        if self._recorder is not None:
            side.append(self._side(self._count(self._recorder, parent)))
        if self._lag is not None:
            side.append(self._side(self._lag.measure()))
        try:
            await self._over
        except asyncio.CancelledError:
            self._end("suspended")
            raise
        finally:
            await _cancel_all([*self._tasks, *side])
            for deadline in deadlines:
                deadline.close()
            for lane in self._lanes:
                lane.close()
            self._ended = loop.time()

    def _hire(self, crew: Crew, parent: int | None) -> None:
        spec, loop = crew.node.spec, asyncio.get_running_loop()
        group = None if self._recorder is None else self._recorder.track(spec.name, parent, rank=crew.node.depth)
        for index in range(spec.workers):
            lane = Lane(spec.name, index, crew.node.meter, loop.time, self._recorder, group)
            self._lanes.append(lane)
            crew.running += 1
            self._workers += 1
            self._start(crew, Hands(self, crew, lane))

    def _start(self, crew: Crew, hands: Hands) -> None:
        task = asyncio.get_running_loop().create_task(work(hands), name=_task_name(crew))
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._left(crew, hands, done))

    def _left(self, crew: Crew, hands: Hands, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if self._over is None or self._over.done():
            if not task.cancelled() and task.exception() is not None:
                self._fail(task.exception())
        elif task.cancelled():
            # Killed by somebody else. Its lease is back in its place; a step half taken is not, so that ends the run.
            if crew.node.spec.collect is not None:
                self._fail(StageFailed(crew.node.spec.name, (), 0, 0, RuntimeError("its worker was cancelled from outside")))
            else:
                self._start(crew, hands)
        elif (error := task.exception()) is not None:
            self._fail(error)
        else:
            self._workers -= 1
            self._maybe_over()

    def _maybe_over(self) -> None:
        if self._workers == 0 and not self._loading:
            self._end("completed")

    def _fail(self, error: BaseException | None) -> None:
        if self._error is None:
            self._error = error
        self._end("failed")

    def _end(self, status: Status) -> None:
        if self._stop is None:
            self._stop = status
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    def _side(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(lambda t: None if t.cancelled() or t.exception() is None else self._fail(t.exception()))
        return task

    # --- feedback ---

    async def _load(self, name: str) -> None:
        """Put published values of one cell in force, the newest first."""
        cell, spec = self.state.cells[name], self.plan.spec.cells[name]
        parker = self._loaders[name] = Parker()
        while True:
            await parker.wait()
            while (pending := cell.pending()) is not None:
                version, value = pending
                began = asyncio.get_running_loop().time()
                try:
                    if spec.load is not None:
                        await spec.load(value, version)
                except Exception as error:
                    raise StageFailed(f"{name} (load of version {version})", (), 0, 0, error) from error
                cell.enforce(version, value)
                self._record_load(name, version, began)
                for admission in {id(n.admission): n.admission for n in self._readers(name)}.values():
                    if admission is not None:
                        admission.enforce(version)
            self._loading.discard(name)
            self._maybe_over()

    def _readers(self, cell: str) -> list[NodeState]:
        sinks = {feedback.source for feedback in self.plan.spec.feedback if feedback.cell == cell}
        return [self.state.nodes[sink] for sink in sinks]

    def _record_load(self, name: str, version: int, began: float) -> None:
        if self._recorder is not None:
            track = self._recorder.track(f"{name} (load)")
            self._recorder.begin(track, "load", int(began * 1e9), {"version": version})
            self._recorder.end(track, int(asyncio.get_running_loop().time() * 1e9))

    # --- counters of the trace ---

    async def _count(self, recorder: Recorder, parent: int | None) -> None:
        edges = {
            node.input: recorder.counter(f"{node.input.name} depth", "items", parent)
            for node in self.state.nodes.values()
            if node.input is not None
        }
        groups = {
            node.groups: recorder.counter(f"{name} open groups", "groups", parent)
            for name, node in self.state.nodes.items()
            if node.spec.kind == "group" and node.groups is not None
        }
        while True:
            at = int(asyncio.get_running_loop().time() * 1e9)
            for channel, track in edges.items():
                recorder.count(track, len(channel), at)
            for table, track in groups.items():
                recorder.count(track, len(table.open), at)
            await asyncio.sleep(_COUNTERS_EVERY_S)


async def _enter(stack: AsyncExitStack, stage: AbstractAsyncContextManager[Any] | object) -> None:
    """Open a stage that holds resources."""
    if isinstance(stage, AbstractAsyncContextManager):
        await stack.enter_async_context(cast("AbstractAsyncContextManager[Any]", stage))


def _drawing(node: NodeState) -> Callable[[], Any]:
    return drawing(node.spec.stage) if node.spec.kind == "source" else lambda: None


def _task_name(crew: Crew) -> str:
    # A step half taken cannot be given back by the stage, so the worker of a collecting sink cannot be started again.
    return f"{crew.node.spec.name} {'worker' if crew.node.spec.collect is None else 'collector'}"


def _waker(crew: Crew) -> Callable[[], None]:
    def wake() -> None:
        for parker in crew.turns.values():
            parker()

    return wake


async def _cancel_all(tasks: Sequence["asyncio.Task[None]"]) -> None:
    """Cancel and wait until all are gone, whatever they raise on the way."""
    for task in tasks:
        task.cancel()
    while pending := [task for task in tasks if not task.done()]:
        await asyncio.wait(pending)
