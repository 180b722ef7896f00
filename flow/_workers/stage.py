"""Workers of a stage or a plain sink: lease, run the user's code, wait for room, commit.

Pool units are granted before the lease and released before waiting for room. Cancelled anywhere, the lease is given back.
"""

import asyncio
import traceback
from typing import Any, cast

from .._core.item import Item, Lease
from .._core.pools import Request
from .._errors import BudgetExceeded, CancelledInside, DeadlineExceeded, StageFailed, format_path
from .._item import Failed, Filtered, Many
from .._policy import Drop, Emit, Failure, OnError, Retry
from .hands import Hands, flow_id, lease_arguments


class Stage:
    """Worker of a stage node."""

    def __init__(self, hands: Hands) -> None:
        self._hands, self._state, self._crew, self._node = hands, hands.state, hands.crew, hands.node

    async def run(self) -> None:
        """Handle inputs until they have ended."""
        while True:
            started = await self._start()
            if started is None:
                return
            lease, request = started
            if self._state.complete:
                self._settle_unwanted(lease, request, "surplus")
            elif self._state.orphaned(self._node, lease.item):
                self._settle_unwanted(lease, request, "group closed")
            else:
                try:
                    await self._handle(lease, request)
                except BaseException:
                    if lease.open:
                        self._state.give_back(self._node, lease)
                    raise
                finally:
                    if request is not None:
                        self._state.pools.release(request)

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

    async def _handle(self, lease: Lease, request: Request | None) -> None:
        policy: OnError = self._node.spec.on_error
        retries = policy.times if isinstance(policy, Retry) else 0
        while True:
            outcome = await self._attempt(lease)
            if not isinstance(outcome, BaseException):
                break
            self._note(outcome)
            if isinstance(policy, Retry) and isinstance(outcome, policy.on) and retries > 0:
                retries -= 1
                self._node.meter.retried += 1
                lease.item = lease.item.retried()
                await asyncio.sleep(policy.backoff_s * 2 ** (policy.times - retries - 1))
            else:
                outcome = self._give_up(policy, lease, outcome)
                break
        if request is not None:
            self._state.pools.release(request)
        await self._deliver(lease, outcome)

    async def _attempt(self, lease: Lease) -> Any:
        """Run the stage once. Its exceptions are returned; a cancellation from outside is raised."""
        task = asyncio.current_task()
        assert task is not None
        before = task.cancelling()
        deadline = self._crew.deadlines.set(task)
        context = self._hands.context(lease, deadline)
        self._hands.lane.enter("work", format_path(lease.item.path), [flow_id(lease.item.path)], lease_arguments(lease))
        try:
            result = await self._hands.call(self._node.spec.stage, lease.item.value, context)
        except asyncio.CancelledError:
            if self._crew.deadlines.clear(task):
                if task.uncancel() > before:
                    raise
                return DeadlineExceeded(self._node.spec.name, self._node.spec.deadline_s or 0.0)
            if task.cancelling() > before:
                raise
            return CancelledInside(self._node.spec.name)
        except Exception as error:
            if self._crew.deadlines.clear(task):
                task.uncancel()
            return error
        if self._crew.deadlines.clear(task):
            task.uncancel()
        return result

    def _give_up(self, policy: OnError, lease: Lease, error: BaseException) -> Any:
        """Decide what becomes of an item that failed for good."""
        if isinstance(policy, Retry):
            assert not isinstance(policy.then, str), "checked at build"
            policy = policy.then
        failure = _failure(error)
        if isinstance(policy, Emit):
            value = policy.make(lease.item.value, failure, self._hands.context(lease, None))
            return Failed(value, failure.kind)
        if isinstance(policy, Drop):
            return failure
        item = lease.item
        raise StageFailed(self._node.spec.name, item.path, item.retry, lease.attempt, error) from error

    async def _deliver(self, lease: Lease, outcome: Any) -> None:
        if isinstance(outcome, Filtered):
            self._state.drop(self._node, lease, outcome.reason)
            return
        if isinstance(outcome, Failure):
            self._spend(outcome, True)
            self._state.drop(self._node, lease, outcome.kind, outcome)
            return
        outputs = self._outputs(lease, outcome)
        self._spend(None, any(item.failed is not None for item in outputs))
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
        item = lease.item
        version = item.version if lease.version is None else lease.version
        if isinstance(outcome, Many):
            values = cast("Many[Any]", outcome).values
            derived = [item.derive(value, version) for value in values]
            if item.member is not None and len(derived) > 1:
                error = ValueError(
                    f"expected at most one output for a member of a group, got {len(derived)}; give Many after the barrier"
                )
                raise StageFailed(self._node.spec.name, item.path, item.retry, lease.attempt, error)
            return [Item(d.value, (*d.path, index), d.birth, d.member, d.retry, d.version) for index, d in enumerate(derived)]
        if isinstance(outcome, Failed):
            failed = cast("Failed[Any]", outcome)
            return [item.derive(failed.value, version, failed.reason)]
        return [item.derive(outcome, version)]

    def _spend(self, failure: Failure | None, dropped: bool) -> None:
        policy = self._node.spec.on_error
        if isinstance(policy, Retry):
            policy = policy.then
        if isinstance(policy, Drop | Emit) and not self._node.meter.within_budget(dropped, policy.most, policy.of):
            last = next(reversed(self._node.meter.failures), "") if failure is None else f"{failure.kind}: {failure.message}"
            count = sum(self._node.meter.recent)
            raise BudgetExceeded(self._node.spec.name, count, policy.of, policy.most, last)

    def _note(self, error: BaseException) -> None:
        failure = _failure(error)
        self._node.meter.failures.setdefault(failure.kind, failure.trace)
        self._hands.host.instant(f"{self._node.spec.name}: {failure.kind}", {"message": failure.message})


def _failure(error: BaseException) -> Failure:
    text = "".join(traceback.format_exception(error, limit=-20))
    return Failure(type(error).__name__, str(error).splitlines()[0] if str(error) else "", text)
