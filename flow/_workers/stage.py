"""Workers of a stage or a plain sink: lease, run the user's code, wait for room, commit.

Pool units are granted before the lease and released before waiting for room. Cancelled anywhere, the lease is given back, and
what an attempt on a thread still made is thrown away: nothing saw it, and to make it again is what an attempt number is for. A
sink is the exception: its effect is outside and done, so an item it came to the end with is settled before the cancel goes on.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from .._context import Context
from .._core.budget import Outcome
from .._core.item import Item
from .._core.pools import Request
from .._errors import CancelledInside, DeadlineExceeded, NotResumable, StageFailed, WorkerDied
from .._item import Failed, Filtered
from .._limits import Inline
from .._policy import Drop, Emit, Failure, OnError, Retry
from .._recalling import NodeNotes
from .._stacks import place_of_thread
from .burst import SPECIAL, Burst, Raised, Unwanted, asynchronous
from .hands import Hands, is_awaitable
from .in_bursts import InBursts
from .noted import Noted
from .outputs import failure_of, outputs_of, told

_MOST_ATTEMPTS = 100
"""Attempts at one item that may be cancelled in a row; whoever does it, a stage that cancels its own task does it for ever."""


class _Overdue(Exception):
    """An item that came back must leave before the one in hand, and every other worker waits behind it too: do it first."""


class Stage:
    """Worker of a stage node."""

    def __init__(self, hands: Hands) -> None:
        self._hands, self._state, self._crew, self._node = hands, hands.state, hands.crew, hands.node
        assert self._node.input is not None
        self._input = self._node.input
        self._attempts = self._crew.attempts
        notes = self._crew.notes
        self._noted = Noted(hands, notes, self._attempt, self._retried) if isinstance(notes, NodeNotes) else None
        self._try = self._attempt if self._noted is None else self._noted.attempt
        self._item: Item | None = None  # the lease under way
        self._request: Request | None = None  # pool units held for it

    async def run(self) -> None:
        """Handle inputs until they have ended."""
        if Burst.possible(self._hands):
            await InBursts(self._hands, self.finish).run()
            return
        node, channel, is_sink = self._node, self._input, self._node.output is None
        at_once = not node.spec.needs and node.spec.key is None
        always_wanted = node.groups is None and node.admission is None
        plain = self._is_plain()
        while True:
            if at_once and channel.buffer and not channel.consumers.waiting:
                item = self._state.lease(node)
            else:
                started = await self._start()
                if started is None:
                    return
                item, self._request = started
            self._item = item
            if (node.complete or not always_wanted) and (reason := self._state.unwanted(node, item)):
                self._drop(item, reason)
                self._release()
                continue
            try:
                if plain is None:
                    outcome = await self._try(item)
                else:  # as there, without what such a stage does not need
                    self._attempts[self._hands.task] = item
                    self._hands.lane.work(item)
                    try:
                        outcome = await plain(item.value, Context(self._hands.desk, item, item.attempt, item.seen))
                    except (Exception, asyncio.CancelledError) as error:
                        outcome = self._judged(self._hands.task, 0, None, error)
                    else:
                        if self._hands.cancelled:
                            outcome = self._judged(self._hands.task, 0, outcome, None)
                    finally:
                        del self._attempts[self._hands.task]
                if outcome.__class__ in SPECIAL or not self._delivered(item, outcome):
                    await self._deliver(await self._settled(outcome))
                if self._request is not None:
                    self._release_after_hand_over()
            except _Overdue:
                self._give_back()
            except BaseException:
                self._give_back()
                raise
            if is_sink and self._hands.cancelled:
                raise asyncio.CancelledError

    def _is_plain(self) -> Callable[[Any, Context], Awaitable[Any]] | None:
        """The stage, where it is asynchronous, runs on the loop, and has no deadline, no age and no journal."""
        spec = self._node.spec
        on_loop = isinstance(spec.placement, Inline) and asynchronous(spec.stage) and self._noted is None
        return spec.stage if on_loop and not spec.timed and spec.kind == "stage" else None

    async def finish(self, item: Item, outcome: Any) -> None:
        """What is special about an item that ended a stretch: from here on it is an attempt like any other."""
        self._item = item
        try:
            if is_awaitable(outcome):
                outcome = await self._attempt(item, begun=outcome)
            if outcome.__class__ in SPECIAL or not self._delivered(item, outcome):
                await self._deliver(await self._settled(outcome))
        except BaseException:
            self._give_back()
            raise

    def _give_back(self) -> None:
        self._release()
        if self._item is not None and self._item.leased:
            self._state.give_back(self._node, self._item)

    def _release_after_hand_over(self) -> None:
        """Give pool units back once the worker behind, which was just woken, could ask for them: downstream goes first."""
        if self._request is not None and self._state.pools.waiting:
            asyncio.get_running_loop().call_soon(self._state.pools.release, self._request)
            self._request = None
        self._release()

    def _release(self) -> None:
        """Give back pool units; harmless where none are held."""
        if self._request is not None:
            self._state.pools.release(self._request)
            self._request = None

    def _delivered(self, item: Item, outcome: Any) -> bool:
        """Hand a plain result on where nothing has to be waited for; ``False`` to go the long way."""
        node = self._node
        if node.output is None or node.output.room <= 0 or node.spec.order == "input" or node.spec.key is not None:
            return False
        if self._noted is not None:
            return False
        node.budget.kept()
        self._state.pass_on(node, item, outcome)
        if self._hands.host.watched:
            self._hands.host.committed(node.spec.name, [outcome])
        return True

    async def _start(self) -> tuple[Item, Request | None] | None:
        """Wait for an input and the pool units it needs; ``None`` at the end of the input."""
        channel, parker, crew, lane = self._input, self._hands.parker, self._crew, self._hands.lane
        line = channel.consumers
        line.join(parker)
        behind: float | None = None if line.leads(parker) else crew.pool_seconds(lane.clock())
        try:
            while True:
                if line.leads(parker):
                    if behind is not None:
                        lane.move(crew.pool_seconds(lane.clock()) - behind, "input", "pool")
                        behind = None
                    if self._node.next_index() is not None:
                        crew.first_asks(lane.clock())
                        try:
                            request = await self._granted()
                        finally:
                            crew.first_has(lane.clock())
                        if (index := self._node.next_index()) is not None:
                            return self._state.lease(self._node, index), request
                        if request is not None:
                            self._state.pools.release(request)
                        continue
                    if channel.ended:
                        return None
                self._hands.lane.enter("input", channel.name)
                await parker.wait()
        finally:
            channel.stop_waiting_to_take(parker)
            if self._node.on_turn is not None and channel.buffer:
                self._node.on_turn()  # who waits for its turn counted on this worker to take what is older

    async def _granted(self) -> Request | None:
        needs = self._node.spec.needs
        if not needs:
            return None
        request = self._state.pools.request(needs, self._node.depth, self._hands.parker)
        try:
            while not request.granted:
                self._hands.lane.enter("pool", ", ".join(needs))
                await self._hands.parker.wait()
        except BaseException:
            self._state.pools.release(request)
            raise
        return request

    async def _settled(self, outcome: Any) -> Any:
        """Repeat an attempt that raised until it succeeds or the policy gives up."""
        policy = self._node.spec.on_error
        while isinstance(outcome, Raised):
            item = self._item
            assert item is not None
            self._hands.note(item, outcome.error)
            self._release()
            if isinstance(outcome.error, WorkerDied) and outcome.error.for_good:
                raise self._failed(item, outcome.error) from outcome.error  # whatever the policy: no other item fares better
            if reason := self._state.unwanted(self._node, item):
                return Unwanted(reason)
            if not (isinstance(policy, Retry) and isinstance(outcome.error, policy.on) and item.retries < policy.times):
                return self._give_up(policy, item, outcome.error)
            self._hands.tell("retried", item, outcome.error)
            if self._noted is not None:
                self._noted.retried(item, failure_of(outcome.error))
            item = self._retried(item)
            paused = await self._pause(item, policy.backoff_s * 2 ** (item.retries - 1))
            if paused is None:
                self._request = await self._granted()
                outcome = await self._try(item)
            else:
                outcome = paused
        return outcome

    def _retried(self, item: Item) -> Item:
        self._node.meter.retried += 1
        self._item = again = self._input.retried(item)
        return again

    async def _pause(self, item: Item, seconds: float) -> Unwanted | None:
        """Wait before a retry, as long as the item is wanted."""
        task, crew = self._hands.task, self._crew
        crew.pauses[task] = item
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            if task not in crew.unwanted or task.uncancel() > 0:
                raise
        finally:
            del crew.pauses[task]
            reason = crew.unwanted.pop(task, "")
        return Unwanted(reason) if reason else None

    async def _attempt(self, item: Item, begun: Any = None) -> Any:
        """Run the stage once. ``begun``: what it gave already, to be awaited.

        Its exceptions are returned; a cancellation from outside is raised, also one the stage swallowed.
        """
        crew, hands, spec = self._crew, self._hands, self._node.spec
        task = hands.task
        before = task.cancelling()
        deadline = None if not spec.timed else crew.deadlines.set(task)
        crew.attempts[task] = item
        hands.lane.work(item)
        cause: BaseException | None = None
        result: Any = None
        try:
            if begun is not None:
                result = await begun
            elif crew.processes is not None:
                result = await crew.processes.call(item.value, hands.context(item, deadline))
            elif crew.executor is None:
                result = spec.stage(item.value, hands.context(item, deadline))
                if is_awaitable(result):
                    result = await result
            else:
                result = await hands.call(spec.stage, item.value, hands.context(item, deadline))
        except (Exception, asyncio.CancelledError) as error:
            cause = error
        del crew.attempts[task]
        if cause is None and deadline is None and task.cancelling() == before:
            return result
        return self._judged(task, before, result, cause)

    def _judged(self, task: "asyncio.Task[Any]", before: int, result: Any, cause: BaseException | None) -> Any:
        """Tell what an attempt came to: whose cancellation it was, and whether its result still counts."""
        spec = self._node.spec
        late, unwanted = self._crew.deadlines.clear(task), self._crew.unwanted.pop(task, "")
        for _ in range(late + bool(unwanted)):
            task.uncancel()
        if task.cancelling() > before and (cause is not None or self._node.output is not None):
            assert self._item is not None
            if self._item.attempt < _MOST_ATTEMPTS or self._hands.host.stopping:
                raise asyncio.CancelledError from cause
            while task.cancelling() > before:
                task.uncancel()
            return Raised(CancelledInside(spec.name))
        if unwanted:
            return Unwanted(unwanted)
        if late and (cause is not None or self._crew.executor is not None):  # a thread ends, late as it is, in a result
            late_error = DeadlineExceeded(spec.name, spec.deadline_s)
            late_error.__cause__ = cause
            for call in self._crew.executor.calls if self._crew.executor is not None else ():
                if call.task is task and call.abandoned and call.thread is not None:
                    late_error.add_note(f"its thread is still in {place_of_thread(call.thread) or 'a call'}")
            return Raised(late_error)
        if cause is None:
            return result
        return Raised(CancelledInside(spec.name) if isinstance(cause, asyncio.CancelledError) else cause)

    def _give_up(self, policy: OnError, item: Item, error: BaseException) -> Any:
        """Decide what becomes of an item that failed for good."""
        self._hands.tell("failed", item, error)
        if isinstance(policy, Retry):
            assert not isinstance(policy.then, str), "checked at build"
            policy = policy.then
        failure = failure_of(error)
        if isinstance(policy, Emit):
            try:
                return Failed(policy.make(item.value, failure, self._hands.context(item)), failure.kind)
            except Exception as second:
                second.__cause__ = error
                raise self._failed(item, second) from second
        if isinstance(policy, Drop):
            return failure
        raise self._failed(item, error) from error

    def _failed(self, item: Item, error: BaseException) -> StageFailed:
        return StageFailed(self._node.spec.name, item.path, item.retry, item.attempt, error)

    async def _deliver(self, outcome: Any) -> None:
        item = self._item
        assert item is not None
        if isinstance(outcome, Unwanted):
            self._drop(item, outcome.reason)
            return
        if isinstance(outcome, Filtered):
            self._spend("filtered", told(outcome))
            self._note_made(item, outcome)
            self._drop(item, outcome.reason)
            return
        if isinstance(outcome, Failure):
            self._spend("failed", f"{outcome.kind}: {outcome.message}")
            self._note_made(item, outcome)
            self._drop(item, outcome.kind, outcome)
            return
        outputs = self._outputs(item, outcome)
        if isinstance(outcome, Failed):
            marked = cast("Failed[Any]", outcome)
            self._spend("marked", told(marked))
            self._node.meter.failures.setdefault(marked.reason, marked.detail)
        else:
            self._node.budget.kept() if outputs else self._spend("filtered", "no output")
        self._note_made(item, outcome)
        if self._node.output is None:
            self._state.commit(self._node, item, ())
            self._hands.host.committed(self._node.spec.name, [outcome])
            return
        if self._node.spec.order == "input":
            self._release()
            await self._wait_for_turn(item)
        if not self._node.output.producers.waiting and self._node.output.fits(outputs):
            self._commit(item, outputs)
            return
        self._release()
        await self._hands.wait_for_room(self._node.output, outputs)
        self._commit(item, outputs)

    def _note_made(self, item: Item, outcome: Any) -> None:
        """Have the journal hold what an attempt came to, before anything sees it."""
        try:
            if self._noted is not None:
                self._noted.made(item, outcome)
        except NotResumable as error:
            raise self._failed(item, error) from error

    def _drop(self, item: Item, reason: str, failure: Failure | None = None) -> None:
        self._state.drop(self._node, item, reason, failure)
        if self._noted is not None:
            self._noted.gone(item)

    def _commit(self, item: Item, outputs: list[Item]) -> None:
        self._state.commit(self._node, item, outputs)
        if self._noted is not None:
            self._noted.passed_on(item)
        self._hands.host.committed(self._node.spec.name, [output.value for output in outputs])

    async def _wait_for_turn(self, item: Item) -> None:
        self._crew.turns[item.position] = self._hands.parker
        try:
            while not self._state.has_turn(self._node, item):
                oldest = self._input.oldest
                if oldest is not None and oldest < item.position and not self._input.consumers.waiting:
                    raise _Overdue
                self._hands.lane.enter("output", "its turn")
                await self._hands.parker.wait()
        finally:
            del self._crew.turns[item.position]

    def _outputs(self, item: Item, outcome: Any) -> list[Item]:
        alone = item.member is not None or self._node.admission is not None
        try:
            return outputs_of(item, outcome, self._state.stamp(self._node, item), alone=alone)
        except ValueError as error:
            raise self._failed(item, error) from None

    def _spend(self, outcome: Outcome, reason: str = "") -> None:
        self._node.budget.record(outcome, reason)
        if (exceeded := self._node.budget.exceeded()) is not None:
            raise exceeded
