"""Workers of a stage or a plain sink: lease, run the user's code, wait for room, commit.

Pool units are granted before the lease and released before waiting for room. Cancelled anywhere, the lease is given back, and
what an attempt on a thread still made is thrown away: nothing saw it, and to make it again is what an attempt number is for. A
sink is the exception: its effect is outside and done, so an item it came to the end with is settled before the cancel goes on.
"""

import asyncio
import traceback
from dataclasses import dataclass
from typing import Any, cast

from .._core.budget import Outcome
from .._core.item import Item, Lease
from .._core.pools import Request
from .._errors import CancelledInside, DeadlineExceeded, StageFailed
from .._item import Failed, Filtered, Many
from .._policy import Drop, Emit, Failure, OnError, Retry
from .hands import Hands, is_awaitable


@dataclass(frozen=True)
class _Raised:
    """An attempt ended in this error."""

    error: BaseException


class _Orphaned:
    """An attempt was cancelled, or is not repeated, since its group is closed."""


_SPECIAL = frozenset({Many, Failed, Filtered, Failure, _Raised, _Orphaned})
"""Outcomes that are not simply handed on."""


class Stage:
    """Worker of a stage node."""

    def __init__(self, hands: Hands) -> None:
        self._hands, self._state, self._crew, self._node = hands, hands.state, hands.crew, hands.node

    async def run(self) -> None:
        """Handle inputs until they have ended."""
        node, state, starters = self._node, self._state, self._crew.starters
        assert node.input is not None
        channel, at_once, is_sink = node.input, not node.spec.needs, node.output is None
        while True:
            if at_once and channel.buffer and not starters.waiting:
                lease, request = state.lease(node), None
            else:
                started = await self._start()
                if started is None:
                    return
                lease, request = started
            if node.complete:
                self._settle_unwanted(lease, request, "surplus")
                continue
            if lease.item.member is not None and state.orphaned(node, lease.item):
                self._settle_unwanted(lease, request, "group closed")
                continue
            try:
                outcome = await self._attempt(lease, request)
                if outcome.__class__ in _SPECIAL or not self._delivered(lease, outcome):
                    await self._deliver(lease, await self._settled(lease, outcome))
            except BaseException:
                if lease.open:
                    state.give_back(node, lease)
                raise
            if is_sink and self._hands.cancelled:
                raise asyncio.CancelledError

    def _delivered(self, lease: Lease, outcome: Any) -> bool:
        """Hand a plain result on where nothing has to be waited for; ``False`` to go the long way."""
        node, item = self._node, lease.item
        if node.spec.order == "input":
            return False
        output: Item | None = None
        if node.output is not None:
            if not node.output.takes_one:
                return False
            version = item.version if lease.version is None else self._state.stamp(node, lease)
            output = Item(outcome, item.path, item.birth, item.member, item.retry, version, item.failed)
        node.budget.record("kept")
        self._state.commit_one(node, lease, output)
        if self._hands.host.watched:
            self._hands.host.committed(node.spec.name, [outcome])
        return True

    def _settle_unwanted(self, lease: Lease, request: Request | None, reason: str) -> None:
        if request is not None:
            self._state.pools.release(request)
        self._state.drop(self._node, lease, reason)

    async def _start(self) -> tuple[Lease, Request | None] | None:
        """Wait for an input and the pool units it needs; ``None`` at the end of the input."""
        node, line = self._node, self._crew.starters
        assert node.input is not None
        if not len(line) and not node.spec.needs and len(node.input):
            return self._state.lease(node), None
        line.join(self._hands.parker)
        try:
            while True:
                if line.leads(self._hands.parker):
                    node.input.on_item = self._hands.parker
                    if len(node.input):
                        request = await self._granted()
                        if len(node.input):
                            return self._state.lease(node), request
                        if request is not None:
                            self._state.pools.release(request)
                        continue
                    if node.input.ended:
                        return None
                self._hands.lane.enter("input", node.input.name)
                await self._hands.parker.wait()
        finally:
            line.leave(self._hands.parker)

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

    async def _settled(self, lease: Lease, outcome: Any) -> Any:
        """Repeat an attempt that raised until it succeeds or the policy gives up."""
        policy = self._node.spec.on_error
        while isinstance(outcome, _Raised):
            self._note(outcome.error)
            if self._state.orphaned(self._node, lease.item):
                return _Orphaned()
            if not (isinstance(policy, Retry) and isinstance(outcome.error, policy.on) and lease.retries < policy.times):
                return self._give_up(policy, lease, outcome.error)
            lease.retry()
            self._node.meter.retried += 1
            await asyncio.sleep(policy.backoff_s * 2 ** (lease.retries - 1))
            outcome = await self._attempt(lease, await self._granted())
        return outcome

    async def _attempt(self, lease: Lease, request: Request | None) -> Any:
        """Run the stage once, holding pool units only meanwhile.

        Its exceptions are returned; a cancellation from outside is raised, also one the stage swallowed.
        """
        crew, hands, spec = self._crew, self._hands, self._node.spec
        task = hands.task
        before = task.cancelling()
        deadline = None if spec.deadline_s is None else crew.deadlines.set(task)
        if lease.item.member is not None:
            crew.members[task] = lease.item
        hands.lane.work(hands.about, lease)
        cause: BaseException | None = None
        result: Any = None
        try:
            if crew.executor is None:
                result = spec.stage(lease.item.value, hands.context(lease, deadline))
                if is_awaitable(result):
                    result = await result
            else:
                result = await hands.call(spec.stage, lease.item.value, hands.context(lease, deadline))
        except (Exception, asyncio.CancelledError) as error:
            cause = error
        finally:
            if request is not None:
                self._state.pools.release(request)
        if cause is None and deadline is None and lease.item.member is None and task.cancelling() == before:
            return result
        return self._judged(task, before, result, cause)

    def _judged(self, task: "asyncio.Task[Any]", before: int, result: Any, cause: BaseException | None) -> Any:
        """Tell what an attempt came to: whose cancellation it was, and whether its result still counts."""
        spec = self._node.spec
        self._crew.members.pop(task, None)
        late, orphaned = self._crew.deadlines.clear(task), task in self._crew.orphans
        self._crew.orphans.discard(task)
        for _ in range(late + orphaned):
            task.uncancel()
        if task.cancelling() > before and (cause is not None or self._node.output is not None):
            raise asyncio.CancelledError from cause
        if orphaned:
            return _Orphaned()
        if late and (cause is not None or self._crew.executor is not None):  # a thread ends, late as it is, in a result
            late_error = DeadlineExceeded(spec.name, spec.deadline_s or 0.0)
            late_error.__cause__ = cause
            return _Raised(late_error)
        if cause is None:
            return result
        return _Raised(CancelledInside(spec.name) if isinstance(cause, asyncio.CancelledError) else cause)

    def _give_up(self, policy: OnError, lease: Lease, error: BaseException) -> Any:
        """Decide what becomes of an item that failed for good."""
        if isinstance(policy, Retry):
            assert not isinstance(policy.then, str), "checked at build"
            policy = policy.then
        failure = _failure(error)
        if isinstance(policy, Emit):
            try:
                return Failed(policy.make(lease.item.value, failure, self._hands.context(lease)), failure.kind)
            except Exception as second:
                second.__cause__ = error
                raise self._failed(lease, second) from second
        if isinstance(policy, Drop):
            return failure
        raise self._failed(lease, error) from error

    def _failed(self, lease: Lease, error: BaseException) -> StageFailed:
        return StageFailed(self._node.spec.name, lease.item.path, lease.item.retry, lease.attempt, error)

    async def _deliver(self, lease: Lease, outcome: Any) -> None:
        if isinstance(outcome, _Orphaned):
            self._state.drop(self._node, lease, "group closed")
            return
        if isinstance(outcome, Filtered):
            self._spend("filtered", outcome.reason)
            self._state.drop(self._node, lease, outcome.reason)
            return
        if isinstance(outcome, Failure):
            self._spend("failed", f"{outcome.kind}: {outcome.message}")
            self._state.drop(self._node, lease, outcome.kind, outcome)
            return
        outputs = self._outputs(lease, outcome)
        if isinstance(outcome, Failed):
            marked = cast("Failed[Any]", outcome)
            self._spend("marked", f"{marked.reason}: {marked.detail}" if marked.detail else marked.reason)
            self._node.meter.failures.setdefault(marked.reason, marked.detail)
        else:
            self._spend("kept" if outputs else "filtered", "" if outputs else "no output")
        if self._node.output is None:
            self._state.commit(self._node, lease, ())
            self._hands.host.committed(self._node.spec.name, [outcome])
            return
        if self._node.spec.order == "input":
            await self._wait_for_turn(lease)
        await self._hands.wait_for_room(self._node.output, outputs)
        self._state.commit(self._node, lease, outputs)
        self._hands.host.committed(self._node.spec.name, [item.value for item in outputs])

    async def _wait_for_turn(self, lease: Lease) -> None:
        self._crew.turns[lease.position] = self._hands.parker
        try:
            while not self._state.has_turn(self._node, lease):
                self._hands.lane.enter("output", "its turn")
                await self._hands.parker.wait()
        finally:
            del self._crew.turns[lease.position]

    def _outputs(self, lease: Lease, outcome: Any) -> list[Item]:
        item, version = lease.item, self._state.stamp(self._node, lease)
        if isinstance(outcome, Many):
            values = cast("Many[Any]", outcome).values
            derived = [item.derive(value, version, item.failed) for value in values]
            if (item.member is not None or self._node.admission is not None) and len(derived) > 1:
                error = ValueError(
                    f"expected at most one output for what takes part in a group or holds a ticket, got {len(derived)}; "
                    "hand on one value that holds them all"
                )
                raise self._failed(lease, error)
            return [
                Item(d.value, (*d.path, index), d.birth, d.member, d.retry, d.version, d.failed)
                for index, d in enumerate(derived)
            ]
        if isinstance(outcome, Failed):
            failed = cast("Failed[Any]", outcome)
            return [item.derive(failed.value, version, failed.reason)]
        return [item.derive(outcome, version, item.failed)]  # a mark stays on what is made of a failure

    def _spend(self, outcome: Outcome, reason: str = "") -> None:
        self._node.budget.record(outcome, reason)
        if outcome != "kept" and (exceeded := self._node.budget.exceeded()) is not None:
            raise exceeded

    def _note(self, error: BaseException) -> None:
        failure = _failure(error)
        self._node.meter.failures.setdefault(failure.kind, failure.trace)
        self._hands.host.instant(f"{self._node.spec.name}: {failure.kind}", {"message": failure.message})


def _failure(error: BaseException) -> Failure:
    text = "".join(traceback.format_exception(error, limit=-20))
    return Failure(type(error).__name__, str(error).splitlines()[0] if str(error) else "", text)
