"""What every worker has: its lane, its bed, a way to call user code, and a way to wait for room."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from .._context import Context, Desk, Versioned
from .._core.channel import Channel
from .._core.item import Item
from .._core.node import NodeState
from .._core.state import State
from .._deadlines import Deadlines
from .._errors import DeadlineExceeded
from .._executor import Executor
from .._lane import Lane
from .._park import Parker
from .._processes.crew import ProcessCrew
from .._recalling import NodeNotes, StepNotes
from .._scribe import Scribe
from .._spans import listen
from .._watcher import GuardedTally
from .outputs import failure_of


class Host(Protocol):
    """What workers need of the run."""

    state: State
    watched: bool
    """Whether anybody looks on."""
    tally: GuardedTally | None
    """Who counts what was drawn and what became of it."""
    number: int
    """Number of the run in its process: runs that share a trace must not share arrows."""

    scribe: Scribe | None
    """Writes into the trace; ``None`` where nobody records."""

    @property
    def stopping(self) -> bool:
        """Whether workers that are cancelled are to end."""
        ...

    restarts: Callable[[asyncio.Task[None]], bool]
    """Whether a worker that was killed is started again, where others of its node are left."""
    threads: type[Executor]
    """What runs the calls of nodes on threads."""

    def parker(self) -> Parker:
        """Make a parker that is woken when the run ends early."""
        ...

    def committed(self, node: str, values: Sequence[Any]) -> None:
        """Tell who watches that values are on their way."""
        ...

    def reported(self, node: str, row: Any) -> None:
        """Tell who watches a row of metrics."""
        ...

    def published(self, node: str, value: Any) -> None:
        """Hand the result of a step to the feedback edges of a sink."""
        ...

    def finished(self, sink: NodeState) -> None:
        """A sink has all its steps."""
        ...

    async def keep(self, hands: "Hands") -> None:
        """A step is complete and published: save the run, where that is due."""
        ...


@dataclass(eq=False)
class Crew:
    """What the workers of one node share.

    Attributes:
        node: state of the node.
        deadlines: deadlines of its attempts.
        executor: its threads; ``None`` where it does not run on threads.
        processes: its processes; ``None`` where it does not run in processes.
        notes: what the journal of the run knows of it; ``None`` where there is none, or it has nothing to do with it.
        values: for a source, what it gives.
        in_hand: for a source, the item it drew that waits for room.
        keeps: for a source on a thread, gives its state, as it is kept; ``None`` where it is not.
        drawn_state: that after its latest draw.
        turns: for a stage that keeps order, who waits to commit which position.
        attempts: attempts under way, by the task that makes them.
        pauses: what is in the pause before a retry, in the same way.
        unwanted: why the attempt of a task was cancelled whose item is wanted no more.
        running: workers that have not ended.
        asked_s: seconds in which the first in line for inputs asked for pool units.
        asking_since: time since when it does; ``None`` where it does not.
    """

    node: NodeState
    deadlines: Deadlines
    executor: Executor | None
    values: Iterator[Any]
    in_hand: Item | None = None
    keeps: Callable[[], bytes] | None = None
    drawn_state: bytes = b""
    turns: dict[int, Parker] = field(default_factory=dict[int, Parker])
    attempts: dict[asyncio.Task[Any], Item] = field(default_factory=dict[asyncio.Task[Any], Item])
    pauses: dict[asyncio.Task[Any], Item] = field(default_factory=dict[asyncio.Task[Any], Item])
    unwanted: dict[asyncio.Task[Any], str] = field(default_factory=dict[asyncio.Task[Any], str])
    running: int = 0
    asked_s: float = 0.0
    asking_since: float | None = None
    processes: ProcessCrew | None = None
    notes: NodeNotes | StepNotes | None = None

    def first_asks(self, now: float) -> None:
        """The first in line for inputs asks for pool units: meanwhile those behind it wait for these too, not for inputs."""
        self.asking_since = now

    def first_has(self, now: float) -> None:
        """It has them, or is gone."""
        if self.asking_since is not None:
            self.asked_s += now - self.asking_since
            self.asking_since = None

    def pool_seconds(self, now: float) -> float:
        """Seconds so far in which the first in line asked for pool units."""
        return self.asked_s + (0.0 if self.asking_since is None else now - self.asking_since)

    def give_up_unwanted(self, state: State) -> None:
        """Cancel the attempts at items that are wanted no more."""
        for task, item in (*self.attempts.items(), *self.pauses.items()):
            if task not in self.unwanted and (reason := state.unwanted(self.node, item)):
                self.unwanted[task] = reason
                task.cancel()


class Hands:
    """One worker, whatever its node does.

    Attributes:
        host: the run.
        state: its moment.
        crew: what the workers of the node share.
        node: state of the node.
        lane: the worker's time.
        parker: the worker's bed.
        desk: what the contexts of its attempts share.
    """

    def __init__(self, host: Host, crew: Crew, lane: Lane) -> None:
        self.host, self.state, self.crew, self.node, self.lane = host, host.state, crew, crew.node, lane
        self.parker = host.parker()
        spec = self.node.spec
        self._ages = self.node.admission if spec.kind == "sink" else None
        inside, name = lane.inside, spec.name
        self.desk = Desk(name, self._read, self._permit, inside.span, lambda row: host.reported(name, row), inside.spent)

    def own(self) -> None:
        """The calling task is this worker from now on."""
        task = asyncio.current_task()
        assert task is not None
        self.task: asyncio.Task[Any] = task
        self.lane.own()
        listen(self.lane.inside if self.lane.recorder is not None else None)

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call user code where the node runs. What is asynchronous in it runs on the loop.

        A call that came to its end gives its result also where it was cancelled meanwhile, as a thread cannot be stopped in
        the middle: whether the work is kept or given up is the caller's choice, who looks at ``cancelled``.
        """
        if self.crew.executor is None:
            result = function(*arguments)
            return await result if is_awaitable(result) else result
        result, cancelled = await on_thread(self.crew.executor, lambda: self.lane.inside.on_thread(function, *arguments))
        if is_awaitable(result):
            if cancelled is not None:
                if inspect.iscoroutine(result):
                    result.close()  # it has not begun; awaited now, it would not hear of the cancel
                raise cancelled
            return await result
        return result

    @property
    def cancelled(self) -> bool:
        """Whether the worker is to end: a cancellation came that no deadline and no closed group has accounted for."""
        return self.task.cancelling() > 0

    async def wait_for_room(self, channel: Channel, items: Sequence[Item]) -> None:
        if not channel.producers.waiting and channel.fits(items):
            return
        self.lane.enter("output", channel.name)
        channel.producers.join(self.parker)
        try:
            while not (channel.producers.leads(self.parker) and channel.fits(items)):
                await self.parker.wait()
        finally:
            channel.stop_waiting_to_put(self.parker)

    def context(self, item: Item, deadline: float | None = None) -> Context:
        lag = self._ages.lag(item.version) if self._ages is not None else None
        return Context(self.desk, item, item.attempt, item.seen, lag, deadline)

    def _report(self, row: Mapping[str, Any]) -> None:
        self.host.reported(self.node.spec.name, row)

    def note(self, item: Item, error: BaseException) -> None:
        """An attempt raised."""
        failure, meter = failure_of(error), self.node.meter
        if failure.kind not in meter.failures:
            meter.failures[failure.kind] = failure.trace
        if isinstance(error, DeadlineExceeded):
            meter.overdue += 1
            self.tell("overdue", item, error)

    def tell(self, what: str, item: Item, error: BaseException) -> None:
        """Mark in the trace what became of an attempt that raised."""
        if self.host.scribe is not None:
            failure = failure_of(error)
            args = {"kind": failure.kind, "message": failure.message}
            self.host.scribe.at(what, self.node.spec.name, item, args)

    def _read(self) -> Versioned[Any]:
        cell = self.node.cell
        if cell is None:
            name = self.node.spec.name
            raise LookupError(f"stage '{name}' reads a cell, but declares none; pass reads=... where it is declared")
        return Versioned(cell.value, cell.version)

    @asynccontextmanager
    async def _permit(self, needs: Mapping[str, int]) -> AsyncGenerator[None]:
        pools = self.state.pools
        for name, units in needs.items():
            if name not in pools.rates and units > pools.sizes.get(name, 0):
                have = pools.sizes.get(name)
                raise LookupError(
                    f"stage '{self.node.spec.name}' asks for {units} of pool '{name}', which "
                    f"{'does not exist' if have is None else f'has {have}'}; declare it with Graph(..., pools=...)"
                )
        parker = Parker(self.lane)
        request = pools.request(needs, self.node.depth, parker)
        since_s: float | None = None
        try:
            if not request.granted:
                with self.lane.waiting_inside("pool", " and ".join(needs)):
                    while not request.granted:
                        await parker.wait()
            if self.lane.recorder is not None:
                since_s = self.lane.clock()
            yield
        finally:
            if since_s is not None:
                self.lane.held({name: units for name, units in needs.items() if name in pools.sizes}, since_s)
            pools.release(request)


def is_awaitable(value: Any) -> bool:
    """Whether a call gave something to await. Asks the class, which costs a fifth of ``inspect.isawaitable``."""
    return hasattr(value.__class__, "__await__")


async def on_thread(executor: Executor, function: Callable[[], Any]) -> tuple[Any, asyncio.CancelledError | None]:
    """Run on a thread. A cancellation waits until the thread is done, since it cannot be stopped in the middle.

    A call whose deadline passes is given up: its worker goes on, and what the thread still gives is thrown away.

    Returns:
        The result, and the cancellation that came meanwhile.

    Raises:
        CancelledError: the call was given up.
    """
    call = executor.submit(function)
    cancelled: asyncio.CancelledError | None = None
    while not call.future.done():
        try:
            await asyncio.wait([call.future])
        except asyncio.CancelledError as error:
            cancelled = error
            if executor.give_up_if_late(call):
                raise
    return call.future.result(), cancelled
