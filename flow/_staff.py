"""The tasks of one run: workers, which are replaced when somebody else kills them, and those that work beside them."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

from ._core.node import NodeState
from ._deadlines import Timer
from ._errors import StageFailed
from ._executor import Executor
from ._keeping import Keeping
from ._lane import Lane, clock_of
from ._limits import Threads
from ._processes.crew import ProcessCrew
from ._workers.hands import Crew, Hands, Host
from ._workers.source import drawn_from
from ._workers.worker import work
from .trace import Recorder

_FEW_THREADS = 8
"""Threads of a node that may hang past their deadline, beside two for each of its workers."""


class Staff:
    """Who works in a run.

    Args:
        host: the run.
        recorder: where lanes are drawn; ``None`` for nowhere.
        on_error: called with what a task died of.
        on_gone: called when the last worker has ended.
        keeping: saves the run; ``None`` where nobody does.

    Attributes:
        crews: workers by node.
        hands: all workers.
        tasks: what runs, with its name in reports.
        num_open: workers that have not ended.
        replaces: whether a worker that is killed is replaced, as until the run is stopped.
    """

    def __init__(
        self,
        host: Host,
        recorder: Recorder | None,
        on_error: Callable[[BaseException], None],
        on_gone: Callable[[], None],
        keeping: Keeping | None = None,
    ) -> None:
        self._host, self._recorder, self._on_error, self._on_gone = host, recorder, on_error, on_gone
        self._keeping = keeping
        self._timer = Timer()
        self._processes: dict[str, ProcessCrew] = {}
        self.crews: list[Crew] = []
        self.hands: list[Hands] = []
        self.tasks: dict[asyncio.Task[None], str] = {}
        self.num_open = 0
        self._due: asyncio.TimerHandle | None = None
        self.replaces = True

    @property
    def executors(self) -> list[Executor]:
        """The threads of all nodes."""
        return [crew.executor for crew in self.crews if crew.executor is not None]

    async def open_processes(self, node: NodeState, stack: AsyncExitStack) -> None:
        """Start the processes of a node, and have the stack end them."""
        spec, graph = node.spec, self._host.state.plan.spec
        crew = ProcessCrew(
            spec.name,
            spec.stage,
            graph.nodes[graph.inputs(spec.name)[0].source].gives,  # what really comes: a subclass would lose its fields
            type(None) if spec.kind == "sink" and spec.gives is None else spec.gives,
            spec.workers,
            None if spec.reads is None else graph.cells[spec.reads].type,
            where=spec.where,
        )
        stack.push_async_callback(crew.close)
        await crew.open()
        self._processes[spec.name] = crew

    def hire(self, parent: int | None) -> None:
        """Start the workers of all nodes. ``parent``: the graph's own track."""
        clock = clock_of(asyncio.get_running_loop())
        for node in self._host.state.nodes.values():
            crew = self._crew(node)
            node.on_turn = _waker(crew)
            self.crews.append(crew)
            group = None if self._recorder is None else self._recorder.track(node.spec.name, parent, rank=node.depth)
            for index in range(node.spec.workers):
                lane = Lane(node.spec.name, index, node.meter, clock, self._recorder, group, self._host.number, node.spec.reads)
                hands = Hands(self._host, crew, lane)
                hands.parker.owner = hands.lane
                self.hands.append(hands)
                crew.running += 1
                self.num_open += 1
                self._start(crew, hands, f"{node.spec.name}/{index}")

    def assist(self, beside: Coroutine[Any, Any, None], name: str) -> None:
        """Run something beside the workers, until the end of the run."""
        task = asyncio.get_running_loop().create_task(beside)
        self.tasks[task] = name

        def ended(task: "asyncio.Task[None]") -> None:
            del self.tasks[task]
            if not task.cancelled() and (error := task.exception()) is not None:
                self._on_error(error)

        task.add_done_callback(ended)

    def call_at(self, look: Callable[[], None]) -> Callable[[float], None]:
        """Give what has pools looked at again, at a time at which a start comes due."""
        loop = asyncio.get_running_loop()

        def at(when: float) -> None:
            if self._due is not None:
                self._due.cancel()
            self._due = loop.call_at(when, look)

        return at

    def give_up_unwanted(self) -> None:
        """Stop what is under way at items that are wanted no more."""
        for crew in self.crews:
            if crew.attempts:
                crew.give_up_unwanted(self._host.state)

    def close(self) -> None:
        """End what keeps the time, once no task is left."""
        self._timer.close()
        if self._due is not None:
            self._due.cancel()
        for hands in self.hands:
            hands.lane.close()

    def _crew(self, node: NodeState) -> Crew:
        deadlines, executor = self._timer.deadlines(node.spec.deadline_s if node.spec.timed else None), None
        if isinstance(node.spec.placement, Threads):

            def late() -> None:
                node.meter.lost["late result"] += 1

            def given_up(running: int) -> None:
                if running > 2 * node.spec.workers + _FEW_THREADS and self.replaces:
                    self._on_error(_too_many_threads(node, running))

            executor = self._host.threads(node.spec.name, deadlines.passed, late, given_up)
        keeping, name = self._keeping, node.spec.name
        skipped = 0 if keeping is None else keeping.skipped.get(name, 0)
        values = drawn_from(node.spec.stage if node.spec.kind == "source" else (), skipped)
        crew = Crew(node, deadlines, executor, values, processes=self._processes.get(name))
        if keeping is not None:
            keeping.hired(crew)
        return crew

    def _start(self, crew: Crew, hands: Hands, name: str) -> None:
        task = hands.task = asyncio.get_running_loop().create_task(work(hands), name=_task_name(crew))
        self.tasks[task] = name
        task.add_done_callback(lambda done: self._left(crew, hands, done))

    def _left(self, crew: Crew, hands: Hands, task: "asyncio.Task[None]") -> None:
        name = self.tasks.pop(task)
        if task.cancelled():
            # Killed by somebody else. Its lease is back in its place; a step half taken is not, so that ends the run.
            if self.replaces and crew.node.spec.collect is None:
                if crew.running == 1 or self._host.restarts(task):
                    self._start(crew, hands, name)
                else:
                    crew.running -= 1
                    self.num_open -= 1
                    hands.lane.close()
            elif self.replaces:
                self._on_error(
                    StageFailed(crew.node.spec.name, (), 0, 0, RuntimeError("its worker was cancelled from outside"))
                )
        elif (error := task.exception()) is not None:
            self._on_error(error)
        else:
            self.num_open -= 1
            if self.num_open == 0:
                self._on_gone()


def _task_name(crew: Crew) -> str:
    # A step half taken cannot be given back by the stage, so the worker of a collecting sink cannot be started again.
    return f"{crew.node.spec.name} {'worker' if crew.node.spec.collect is None else 'collector'}"


def _waker(crew: Crew) -> Callable[[], None]:
    node = crew.node

    def wake() -> None:
        if not crew.turns:
            return
        first, oldest = node.first_turn, None if node.input is None else node.input.oldest
        if first is not None and first in crew.turns:
            crew.turns[first]()
        elif oldest is not None and (first is None or oldest < first):
            next(iter(crew.turns.values()))()  # one of them may have to do first what came back

    return wake


def _too_many_threads(node: NodeState, running: int) -> StageFailed:
    cause = RuntimeError(
        f"expected its calls to end by their deadline of {node.spec.deadline_s or 0:g} s, got {running} threads that still "
        "run; give what they wait for a time limit of its own"
    )
    return StageFailed(node.spec.name, (), 0, 0, cause)
