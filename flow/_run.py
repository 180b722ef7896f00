"""Running a plan: opens the stages, starts the workers, keeps them alive, stops them, and tells how it went.

Workers are plain asyncio tasks held here, not children of a task group: a worker that dies of a stray cancellation is started
again, and the first error of any of them becomes the error of the run, alone and with its cause.
"""

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Protocol, cast

from ._core.groups import Groups
from ._core.state import NodeState, State
from ._counters import count
from ._errors import LedgerError, StageFailed
from ._lag import LoopLag
from ._lane import Lane
from ._limits import Threads
from ._park import Deadlines, Parker, outlast
from ._plan import Plan
from ._stall import watch
from ._summary import Status, Summary, summarise
from ._workers.hands import Crew, Hands
from ._workers.source import drawing
from ._workers.worker import work
from .trace import Recorder

_NUMBERS = itertools.count()


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
        self.plan, self.state, self.number = plan, State(plan), next(_NUMBERS)
        self._recorder, self._watchers, self._stall_s = recorder, tuple(watchers), stall_s
        self.watched = bool(self._watchers)
        self._lag = lag
        self.state.on_group_dropped = self._abandon
        self._parkers: list[Parker] = []
        self._crews: list[Crew] = []
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
        self._closed = False
        # What a simulation decides otherwise: whether a worker that was killed is started again, and what threads are.
        self.restarts: Callable[[asyncio.Task[None]], bool] = lambda killed: True
        self.threads: Callable[[int, str], ThreadPoolExecutor] = ThreadPoolExecutor

    async def finish(self) -> Summary:
        """Run to the end.

        Returns:
            The summary, with status ``completed``, or ``suspended`` after ``suspend``.

        Raises:
            StageFailed: a stage failed and its policy is to end the run.
            BudgetExceeded: a node failed too many items, or dropped too many groups.
            Stalled: nothing moved for too long.
            LedgerError: the counts do not add up; a fault of the engine.
            RuntimeError: the run was finished before.
            CancelledError: this call was cancelled. The run is suspended and closed first, once and whole, however many
                further cancels come; an error on the way is its cause.
        """
        if self._over is not None:
            raise RuntimeError("expected a new run, got one that was started before; make another with Run(plan)")
        loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        if self._stop is not None:
            self._over.set_result(None)
        # A task of its own: what cancels the caller must not cut the closing of stages short.
        whole = loop.create_task(self._execute(), name=f"{self.plan.spec.name} run")
        cancelled: asyncio.CancelledError | None = None
        while not whole.done():
            try:
                await asyncio.wait([whole])
            except asyncio.CancelledError as error:
                if cancelled is None:
                    self._interrupt(whole)
                cancelled = error
        if cancelled is not None:
            raise cancelled from None if whole.cancelled() else whole.exception()
        return whole.result()

    def _interrupt(self, whole: "asyncio.Task[Summary]") -> None:
        self._end("suspended")
        if self._began is None:
            whole.cancel()  # stages are being opened, which may take long: what is open is closed, the rest is not opened

    async def _execute(self) -> Summary:
        try:
            async with AsyncExitStack() as stack:
                await self._open(stack)
                await self._work()
                if self._error is not None:
                    raise self._error  # so that stages are closed with it
        except Exception as error:
            if self._error is None:
                self._error = error
            elif error is not self._error:
                self._error.add_note(f"and closing a stage failed: {type(error).__name__}: {error}")
        finally:
            self._closed = True
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
        status = ("failed" if self._error else self._stop) if self._closed or self._ended is not None else None
        if self._began is None:
            return summarise(self.state, status, 0.0)
        now = asyncio.get_running_loop().time() if self._ended is None else self._ended
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
            if initial is not None:
                await self._load_version(feedback.cell, initial, 0)
            self.state.cells[feedback.cell].start(initial)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        assert self._over is not None
        self._began = loop.time()
        parent = None if self._recorder is None else self._recorder.track(f"graph {self.plan.spec.name}")
        for node in self.state.nodes.values():
            executor = None
            if isinstance(node.spec.placement, Threads):
                executor = self.threads(node.spec.workers, f"headrace-{node.spec.name}")
            crew = Crew(node, Deadlines(node.spec.deadline_s), executor, _drawing(node))
            node.on_turn = _waker(crew)
            self._crews.append(crew)
            self._hire(crew, parent)
        side = [self._side(self._load(feedback.cell)) for feedback in self.plan.spec.feedback]
        if self._stall_s is not None:
            side.append(self._side(watch(self.state, self._lanes, lambda: bool(self._loading), self._stall_s)))
        if self._recorder is not None:
            side.append(self._side(count(self.state, self._recorder, parent)))
        if self._lag is not None:
            side.append(self._side(self._lag.measure()))
        try:
            await self._over
        except asyncio.CancelledError:
            self._end("suspended")
            raise
        finally:
            cancelled = await self._dismiss(side)
            self._ended = loop.time()
        if cancelled is not None:
            raise cancelled

    async def _dismiss(self, side: "Sequence[asyncio.Task[None]]") -> asyncio.CancelledError | None:
        """End every task, thread and timer of the run, whatever cancels come meanwhile; gives the last of them."""
        tasks = [*self._tasks, *side]
        for task in tasks:
            task.cancel()
        cancelled = await outlast(tasks)
        executors = [crew.executor for crew in self._crews if crew.executor is not None]
        if executors:  # off the loop: shutting down joins threads
            loop = asyncio.get_running_loop()
            cancelled = await outlast([loop.run_in_executor(None, e.shutdown) for e in executors]) or cancelled
        for crew in self._crews:
            crew.deadlines.close()
        for lane in self._lanes:
            lane.close()
        return cancelled

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
            elif crew.running == 1 or crew.node.spec.order == "input" or self.restarts(task):
                # Where order is kept the others may all wait for their turn behind the item that came back.
                self._start(crew, hands)
            else:
                self._workers -= 1
                crew.running -= 1
                hands.lane.close()
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

    def _abandon(self, groups: Groups, birth: int) -> None:
        """A group was given up: what is under way at its members is lost, so it is stopped."""
        for crew in self._crews:
            if crew.members and crew.node.groups is groups:
                crew.abandon(birth)

    # --- feedback ---

    async def _load(self, name: str) -> None:
        """Put published values of one cell in force, the newest first."""
        cell = self.state.cells[name]
        parker = self._loaders[name] = Parker()
        while True:
            await parker.wait()
            while (pending := cell.pending()) is not None:
                version, value = pending
                await self._load_version(name, value, version)
                cell.enforce(version, value)
                for admission in {id(n.admission): n.admission for n in self._readers(name)}.values():
                    if admission is not None:
                        admission.enforce(version)
            self._loading.discard(name)
            self._maybe_over()

    async def _load_version(self, name: str, value: Any, version: int) -> None:
        """Have whoever uses the values of a cell take over this one."""
        load = self.plan.spec.cells[name].load
        began = asyncio.get_running_loop().time()
        try:
            if load is not None:
                await load(value, version)
        except Exception as error:
            raise StageFailed(f"{name} (load of version {version})", (), 0, 0, error) from error
        self._record_load(name, version, began)

    def _readers(self, cell: str) -> list[NodeState]:
        sinks = {feedback.source for feedback in self.plan.spec.feedback if feedback.cell == cell}
        return [self.state.nodes[sink] for sink in sinks]

    def _record_load(self, name: str, version: int, began: float) -> None:
        if self._recorder is not None:
            track = self._recorder.track(f"{name} (load)")
            self._recorder.begin(track, "load", int(began * 1e9), {"version": version})
            self._recorder.end(track, int(asyncio.get_running_loop().time() * 1e9))


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
