"""An engine in virtual time: the rounds, the schedule and the bookkeeping of the real one, over a device that only takes time.

``stages.rollout.worker.Worker`` is the product's own, so slots, prefill steps, shared prompts, evictions and swaps of weights
come out as they would. What is sampled was sampled before: a request is answered with what stands behind its context in the
episode that it is of.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Self

import numpy as np

from graphs.plan.shares import Shares
from graphs.plan.times import EngineTimes
from stages.policy import Sample, SampleRequest
from stages.records import Weights
from stages.rollout.config import EngineConfig
from stages.rollout.mailbox import Mailbox
from stages.rollout.sampling import Drawn
from stages.rollout.schedule import Schedule
from stages.rollout.steps import Decode, Job, Move, ReadIn
from stages.rollout.stops import Stops
from stages.rollout.worker import Load, Worker


class PlayedDevice:
    """Takes the place of ``stages.rollout.device.Device``, and of its parameters.

    Attributes:
        spent_s: seconds that it would have worked since this was set to 0.
        says: token at each position of the row that a session is of.
    """

    compilations = 0

    def __init__(self, times: EngineTimes) -> None:
        self._times = times
        self.parameters = self
        self.spent_s = 0.0
        self.says: dict[str, np.ndarray] = {}
        self.schedule: Schedule | None = None

    def put_in_force(self, leaves: list[Any]) -> None:
        """New weights."""
        self.spent_s += self._times.swap_s

    def move(self, move: Move) -> None:
        """Copies of caches are not measured: they are short beside steps."""

    def read_in(self, work: ReadIn) -> None:
        """A prefill step."""
        self.spent_s += self._times.prefill_s[len(work.lengths_R)]

    def decode(self, work: Decode) -> Drawn:
        """A decode step: each row gets the token that it got before."""
        self.spent_s += self._times.decode_s[len(work.ids_N)]
        assert self.schedule is not None
        ids = np.zeros(len(work.ids_N), np.int32)
        for row in np.flatnonzero(work.lengths_N).tolist():
            job = self.schedule.jobs[int(work.slots_N[row])]
            assert job is not None
            ids[row] = self.says[job.request.session][int(work.positions_N[row]) + 1]
        none = np.zeros(len(ids), np.float32)
        return Drawn(ids, none, none)


class PlayedEngine:
    """Takes the place of ``stages.rollout.engine.Engine`` in a graph. An async context manager on a ``VirtualLoop``.

    Args:
        config: of the engine.
        times: what its steps take.
        device: that it shares, or has alone.

    Attributes:
        busy_s: seconds in which it made steps.
    """

    mesh = None

    def __init__(self, config: EngineConfig, times: EngineTimes, device: Shares) -> None:
        self.config, self._times, self._shares = config, times, device
        self.busy_s = 0.0

    async def __aenter__(self) -> Self:
        self._device, self._mailbox = PlayedDevice(self._times), Mailbox()
        self._ended: list[tuple[object, object]] = []
        self._pending: dict[object, asyncio.Future[Any]] = {}
        self._posted = asyncio.Event()
        self._worker = Worker(self._device, self.config, 0, self._mailbox, self._ended.extend, "engine")  # type: ignore[arg-type]
        schedule = self._device.schedule = self._worker.schedule
        schedule.prefill_buckets, schedule.decode_buckets = (
            tuple(sorted(self._times.prefill_s)),
            tuple(sorted(self._times.decode_s)),
        )
        self._rounds = asyncio.create_task(self._work(), name="played engine")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._rounds.cancel()
        await asyncio.wait([self._rounds])
        if not self._rounds.cancelled():
            self._rounds.result()

    @property
    def context_length(self) -> int:
        """See ``Policy``."""
        return self.config.context_length

    async def say(self, session: str, row: np.ndarray, start: int, stop: int, key: tuple[int, int, int, int, int]) -> Sample:
        """A turn of an episode again.

        Args:
            session: of the episode.
            row: int32 [T]: the tokens that the turn stands in, read from the first on.
            start: where the turn begins.
            stop: where it ends.
            key: see ``SampleRequest``.
        """
        self._device.says[session] = row
        request = SampleRequest(row[:start], stop - start, (), 1.0, key, session)
        job = Job(request, np.zeros(2, np.uint32), Stops(request))
        future = self._expect(job, partial(self._worker.schedule.submit, job))
        try:
            return await future
        except asyncio.CancelledError:
            self._pending.pop(job, None)
            self._post(partial(self._worker.cancel, job))
            raise

    async def sample(self, request: SampleRequest) -> Sample:
        """See ``Policy``; nobody asks this way.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("expected turns that were recorded, see say; got a request of something else, in a plan")

    def release(self, session: str) -> None:
        """See ``Policy``."""
        self._device.says.pop(session, None)
        self._post(partial(self._worker.schedule.release, session))

    def abort(self, session: str) -> None:
        """See ``Policy``."""
        self._post(partial(self._worker.abort, session))

    async def load(self, weights: Weights, version: int) -> None:
        """See ``Engine.load``."""
        load = Load([], version)
        await self._expect(load, partial(self._worker.load, load))

    def _expect(self, ticket: object, call: Callable[[], None]) -> asyncio.Future[Any]:
        future = self._pending[ticket] = asyncio.get_running_loop().create_future()
        self._post(call)
        return future

    def _post(self, call: Callable[[], None]) -> None:
        self._mailbox.post(call)
        self._posted.set()

    async def _work(self) -> None:
        """Round after round, as long as there is something to do."""
        while True:
            self._posted.clear()
            self._device.spent_s = 0.0
            busy = self._worker.round(self._mailbox.take(wait=False) or [])
            began = asyncio.get_running_loop().time()
            await self._shares.work(self._device.spent_s, self._times.demand)
            self.busy_s += asyncio.get_running_loop().time() - began
            self._settle()
            if not busy:
                await self._posted.wait()

    def _settle(self) -> None:
        ended = self._ended.copy()
        self._ended.clear()
        for ticket, outcome in ended:
            future = self._pending.pop(ticket, None)
            if future is None or future.done():
                continue
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
