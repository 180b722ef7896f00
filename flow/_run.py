"""Running a plan: opens the stages, has the staff at work, stops them, and tells how it went.

Workers are plain asyncio tasks, held in ``_staff``, and no children of a task group: the first error of any of them becomes the
error of the run, with its cause. How a run stops is in ``_stop``, how its end is bounded in ``_closing``.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, cast

from ._closing import Closing, leave_behind
from ._core.node import NodeState
from ._core.state import State
from ._counters import Counters
from ._errors import LedgerError, StageFailed, together
from ._executor import Executor
from ._keeping import Keeping
from ._limits import Processes
from ._loading import Loading
from ._longest import end_longest
from ._park import Parker
from ._plan import Plan
from ._scribe import Scribe
from ._staff import Staff
from ._stall import Watch
from ._stop import Stop, shut, stop_drawing, winding_down
from ._summary import Status, Summary, summarise
from ._watcher import GuardedTally, Tally, Watcher
from ._workers.hands import Hands
from .saving._saving import Saving
from .trace import LoopLag, Recorder, recording

_NUMBERS = itertools.count()
_LOG = logging.getLogger("headrace")


class Run:
    """One execution of a plan.

    Args:
        plan: a built graph.
        recorder: where the trace goes; ``None`` for no trace.
        watchers: who looks on.
        stall_s: seconds without a commit after which the run fails, and which closing the stages may take; ``None`` waits for
            ever.
        closing_s: seconds that workers and threads may take to end once they were cancelled. What has not ended then is left
            behind, and named in the error and in the summary.
        lag: measures the loop while the graph is at work; ``None`` to leave it alone.
        tally: who counts what was drawn and what became of it; ``None`` for nobody.
        saving: how the run is saved, and what it goes on from; ``None`` saves nothing.

    Raises:
        BuildError: rule B7, with ``saving``: something of the graph cannot be saved.

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
        closing_s: float = 30.0,
        lag: LoopLag | None = None,
        tally: Tally | None = None,
        saving: Saving | None = None,
    ) -> None:
        self.plan, self.state, self.number = plan, State(plan), next(_NUMBERS)
        self._watchers, self._stall_s = tuple(watchers), stall_s
        self.watched = bool(self._watchers)
        self.tally = None if tally is None else GuardedTally(tally, self._fail, plan.spec)
        self._lag = lag
        self._keeping = None if saving is None else Keeping(self.state, saving, self._fail, recorder)
        self._closing = Closing(closing_s, stall_s)
        self.scribe = None if recorder is None else Scribe(plan.spec.name, self.number, recorder)
        self._loading = Loading(self.state, self.scribe, self._maybe_over)
        self._staff = Staff(self, recorder, self._fail, self._maybe_over, self._keeping)
        self.state.on_unwanted = self._staff.give_up_unwanted
        self.state.on_end = None if self.tally is None else self.tally.ended
        self.state.observer = self.scribe
        self._parkers: list[Parker] = []
        self._errors: list[BaseException] = []
        self._error: BaseException | None = None
        self._asked = Stop.NO
        self._drained = False
        self._stop: Status | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._whole: asyncio.Task[Summary] | None = None
        self._over: asyncio.Future[None] | None = None
        # What a simulation decides otherwise: whether a worker that was killed is started again, and what threads are.
        self.restarts: Callable[[asyncio.Task[None]], bool] = lambda killed: True
        self.threads: type[Executor] = Executor
        self._began: float | None = None
        self._ended: float | None = None
        self._closed = False

    async def finish(self) -> Summary:
        """Run to the end.

        Returns:
            The summary, with status ``completed``, or ``suspended`` after ``suspend``.

        Raises:
            StageFailed: a stage failed and its policy is to end the run.
            BudgetExceeded: a node failed too many items, or dropped too many groups.
            Stalled: nothing moved for too long.
            LedgerError: the counts do not add up; a fault of the engine.
            CommitFailed: the end of the run could not be saved.
            RuntimeError: the run was finished before.
            CancelledError: this call was cancelled. The run is suspended and closed first, once and whole, however many
                further cancels come; an error on the way is its cause.
        """
        if self._loop is not None:
            raise RuntimeError("expected a new run, got one that was started before; make another with Run(plan)")
        self._loop = asyncio.get_running_loop()
        self._over = self._loop.create_future()
        if self._stop is not None:
            self._over.set_result(None)
        # A task of its own: what cancels the caller must not cut the closing of stages short.
        whole = self._whole = self._loop.create_task(self._execute(), name=f"{self.plan.spec.name} run")
        self._hopeless: asyncio.Future[None] = self._loop.create_future()
        cancelled: asyncio.CancelledError | None = None
        while not (whole.done() or self._hopeless.done()):
            try:
                await asyncio.wait([whole, self._hopeless], return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError as error:
                if cancelled is None:
                    self._interrupt(whole)
                cancelled = error
        return self._outcome(whole, cancelled)

    def _outcome(self, whole: "asyncio.Task[Summary]", cancelled: asyncio.CancelledError | None) -> Summary:
        self._closing.stop()
        if self._closing.left:
            _LOG.warning("graph '%s' left behind: %s", self.plan.spec.name, self._closing)
        if not whole.done():
            leave_behind(whole)
            self._note(self._closing.error(self.plan.spec.name))
            self._closed = True
        error = self._error if not whole.done() else None if whole.cancelled() else whole.exception()
        if isinstance(error, StageFailed) and error.node in self.plan.spec.nodes:
            error.add_note(f"stage '{error.node}' is declared at {self.plan.spec.nodes[error.node].where}")
        if error is not None and self._closing.left:
            error.add_note(f"leftover tasks: {self._closing}")
        if cancelled is not None:
            raise cancelled from error
        if error is not None:
            raise error
        return whole.result()

    def _interrupt(self, whole: "asyncio.Task[Summary]") -> None:
        self._end("suspended")
        if self._began is None:
            whole.cancel()  # stages are being opened, which may take long: what is open is closed, the rest is not opened

    async def _execute(self) -> Summary:
        try:
            async with AsyncExitStack() as stack:
                stack.enter_context(recording(None if self.scribe is None else self.scribe.recorder))
                await self._open(stack)
                await self._work()
                self._bound_stages()
                if self._keeping is not None and self._error is None:
                    await self._keeping.end(suspended=self._stop == "suspended")
                if self._error is not None:
                    raise self._error  # so that stages are closed with it
        except Exception as error:
            self._note(error)
        except asyncio.CancelledError:
            if self._closing.overdue:
                self._note(self._closing.error(self.plan.spec.name))
            elif self._error is None:
                raise
        finally:
            self._closed = True
        if self._error is not None:
            raise self._error
        summary = self.summary()
        if not summary.balanced:
            raise LedgerError("the counts of the run do not add up: " + "; ".join([*summary.faults, str(summary.leftovers)]))
        return summary

    def _note(self, error: Exception) -> None:
        """Keep an error that came while stages were opened or closed, beside the one that ended the run."""
        if self._error is None:
            self._error = error
        elif error is not self._error:
            self._error.add_note(f"and closing a stage failed: {type(error).__name__}: {error}")

    def _bound_stages(self) -> None:
        assert self._whole is not None
        hopeless = self._closing.bound_stages(self._whole, len(self.state.nodes))
        hopeless.add_done_callback(lambda _: None if self._hopeless.done() else self._hopeless.set_result(None))

    # --- stopping: the first call wins, a stronger one may follow; all return at once, from any thread ---

    def drain(self) -> None:
        """Let the sources end now and everything on its way come to its end; the run is then ``drained``.

        A source that waits for its next value is cancelled, on a thread after a second. Groups and steps that cannot fill up
        any more end by their policies. A stage may call this and return; it must not wait for the run.
        """
        self._at_once(self._drain)

    def suspend(self, within_s: float | None = None) -> None:
        """Stop where it stands: nothing more is begun, no end is signalled, no group or step cut short.

        Args:
            within_s: seconds that attempts under way may take to end; then they are cancelled and their items given back, as
                they are at once with ``None``.
        """
        self._at_once(self._suspend, within_s)

    def abort(self, error: Exception) -> None:
        """End the run with this error. Asked for while the run is closing, it bounds the rest by a second.

        Raises:
            TypeError: it is no exception, or one that is not for errors, as ``KeyboardInterrupt``.
        """
        if not isinstance(error, Exception):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"expected an exception to end the run with, got {error!r}; pass RuntimeError(...)")
        self._at_once(self._abort, error)

    def _at_once(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call on the loop: now, where the caller is on it."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if self._loop is None or here is self._loop:
            function(*arguments)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)

    def _drain(self) -> None:
        if self._asked < Stop.DRAIN and self._stop is None:
            self._asked, self._drained = Stop.DRAIN, True
            stop_drawing(self.state, self._staff.hands)

    def _suspend(self, within_s: float | None) -> None:
        if self._asked >= Stop.SUSPEND or self._stop is not None:
            return
        self._asked = Stop.SUSPEND
        if within_s is None or self._began is None:
            self._end("suspended")
            return
        self._staff.replaces = False
        shut(self._staff.crews)
        self._staff.assist(
            winding_down(self._staff.hands, within_s, lambda: self._end("suspended")), "the wait for attempts under way"
        )

    def _abort(self, error: BaseException) -> None:
        if self._closed or self._asked >= Stop.ABORT:
            return
        self._asked = Stop.ABORT
        self._closing.hurry()
        self._error = self._error or error
        self._end("failed")
        if self._began is None and self._whole is not None:
            self._whole.cancel()

    def summary(self) -> Summary:
        """Counts so far."""
        status = ("failed" if self._error else self._stop) if self._closed or self._ended is not None else None
        if self._began is None:
            return summarise(self.state, status, 0.0, self._closing.left)
        now = asyncio.get_running_loop().time() if self._ended is None else self._ended
        return summarise(self.state, status, now - self._began, self._closing.left, [hands.lane for hands in self._staff.hands])

    # --- what workers need of the run ---

    @property
    def stopping(self) -> bool:
        """Whether workers that are cancelled are to end."""
        return not self._staff.replaces

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
        """Pass on to the watchers, on the loop: at once for who is on it, so that no step is complete before its row."""
        self._at_once(self._tell, node, dict(row))

    def _tell(self, node: str, row: Mapping[str, Any]) -> None:
        try:
            for watcher in self._watchers:
                watcher.reported(node, row)
        except Exception as error:
            self._fail(error)

    def published(self, node: str, value: Any) -> None:
        """A sink completed a step: its feedback edges publish the result."""
        for cell, version in self._loading.publish(node, value).items():
            if self.scribe is not None:
                self.scribe.published(cell, version, node, self.state.nodes[node].meter.steps)

    async def keep(self, hands: Hands) -> None:
        """A step is complete and published: commit, where that is due."""
        if self._keeping is not None:
            await self._keeping.after_step(hands)

    def finished(self, sink: NodeState) -> None:
        """A sink has all its steps: what is still on its way there is surplus."""
        self.state.complete(sink)
        for parker in self._parkers:
            parker()

    # --- opening and closing ---

    async def _open(self, stack: AsyncExitStack) -> None:
        opened: set[int] = set()
        for node in sorted(self.state.nodes.values(), key=lambda n: -n.depth):
            if isinstance(node.spec.placement, Processes):
                await self._staff.open_processes(node, stack)
            elif id(node.spec.stage) not in opened:
                opened.add(id(node.spec.stage))
                if isinstance(stage := node.spec.stage, AbstractAsyncContextManager):
                    await stack.enter_async_context(cast("AbstractAsyncContextManager[Any]", stage))
        if self._keeping is not None:
            await self._keeping.restore()
            stack.push_async_exit(self._keeping.close)
        await self._loading.start()

    async def _work(self) -> None:
        assert self._loop is not None
        assert self._over is not None
        self._began = self._loop.time()
        self.state.pools.clock = self._loop.time
        self.state.pools.call_at = self._staff.call_at(self.state.pools.look)
        self._staff.hire(None if self.scribe is None else self.scribe.begin(self.state))
        for cell in {feedback.cell for feedback in self.plan.spec.feedback}:
            self._staff.assist(self._loading.serve(cell), f"the load of {cell}")
        watch = Watch(self.state, self._staff.hands, self._loading, self.scribe, self._stall_s)
        if self._stall_s is not None:
            self._staff.assist(watch.look(), "the stall watch")
            self._staff.assist(end_longest(self._staff.crews), "the deadline of all attempts")
        hears = [watch.late]
        if self.scribe is not None:
            counters = Counters(self.state, [hands.lane for hands in self._staff.hands], self.scribe)
            hears.append(counters.late)
            self._staff.assist(counters.write(), "the counters")
        if self._lag is not None:
            self._staff.assist(self._lag.measure(*hears), "the lag of the loop")
        try:
            await self._over
        except asyncio.CancelledError:
            self._end("suspended")
            raise
        finally:
            cancelled = await self._dismiss()
            self._ended = self._loop.time()
        if cancelled is not None:
            raise cancelled

    async def _dismiss(self) -> asyncio.CancelledError | None:
        """End every task, thread and timer of the run, whatever cancels come meanwhile; gives the last of them."""
        if self._errors and self._error is self._errors[0]:
            self._error = together(self.plan.spec.name, self._errors)
        self._staff.replaces = False
        cancelled = await self._closing.end_workers(dict(self._staff.tasks), self._staff.executors)
        self._staff.close()
        if self.scribe is not None:
            self.scribe.close()
        return cancelled

    def _maybe_over(self) -> None:
        if self._staff.num_open == 0 and not self._loading.under_way:
            self._end("drained" if self._drained else "completed")

    def _fail(self, error: BaseException) -> None:
        if self._closed:
            return  # of what was left behind
        if self._error is None:
            self._error = error
        self._errors.append(error)
        self._end("failed")

    def _end(self, status: Status) -> None:
        if self._stop is None:
            self._stop = status
        if self._over is not None and not self._over.done():
            self._over.set_result(None)
            self._staff.replaces = False
            if self._began is None:
                self._bound_stages()  # stages are being opened still, for ever perhaps
