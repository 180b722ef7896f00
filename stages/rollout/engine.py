"""The in-process policy: continuous batching over a fixed number of slots, on a thread of its own.

This file is the event loop's side: it checks requests, posts them to the thread and settles their futures. It schedules nothing
(schedule.py), computes nothing (device.py) and never blocks the loop.

Exactness: a request's tokens and log-probabilities depend, to the bit, on its ids, its key, the weights and how its context was
read in (what was cached, and so evictions), not on its slot or on the requests beside it. This holds on one machine, for one
``EngineConfig``. ``Sample.num_cached`` tells what was cached. Which tokens were shared with others depends on timing, and
changes no bit; which caches are lost depends on it too, and does: with ``eviction="never"`` none is.
"""

import asyncio
import functools
import threading
from collections.abc import Mapping
from typing import Any, Self

from flax import nnx
from jax.sharding import Mesh

from stages.models.transformer import Transformer
from stages.policy import PolicyEnded, Sample, SampleRequest
from stages.records import Weights
from stages.rollout.config import EngineConfig
from stages.rollout.device import Device
from stages.rollout.mailbox import Mailbox
from stages.rollout.requests import request_problem, version_problem
from stages.rollout.sampling import request_key
from stages.rollout.statistics import EngineStatistics
from stages.rollout.steps import Heard, Job, Token
from stages.rollout.stops import Decode, Stops
from stages.rollout.worker import Load, Scramble, Worker

THREAD = "headrace-engine"
"""Name of the engine's thread."""
WOKEN_AT_ONCE = 32
"""Most requests settled in one turn of the loop. Each of them goes on with its episode in the next turn, about 0.15 ms of work:
the whole of a large wave at once would hold up everything else on the loop."""


class Engine:
    """Samples for many sessions at once; a ``stages.policy.Policy``.

    ``async with Engine(model, config) as engine:`` starts the thread and compiles; leaving it fails what is pending and ends
    the thread. All methods are called from the loop that entered it. It may be entered again once left: it then begins anew,
    with the model's parameters as they are by then.

    Args:
        model: decoder whose parameters are in force at first; they are shared, never donated or changed.
        config: fixed shapes.
        version: version of those parameters.
        decode: token ids as text, for requests with stop strings; ``None`` refuses those.
        mesh: devices to compute on; ``None`` for those that the model lies on, whose parameters are then shared.
        name: of its track in the trace: it records where ``flow.trace.recording`` says when it is entered. Two engines that are
            open at once need two.
    """

    def __init__(
        self,
        model: Transformer,
        config: EngineConfig,
        version: int = 0,
        decode: Decode | None = None,
        mesh: Mesh | None = None,
        name: str = "engine",
    ):
        self.config = config
        self._model, self._version, self._decode, self._mesh, self._name = model, version, decode, mesh, name
        self._vocab_size = model.config.vocab_size
        self._renew()
        self._pending: dict[object, asyncio.Future[Any]] = {}
        self._is_open = False
        self._ended: BaseException | None = RuntimeError("the engine has not been entered")

    async def __aenter__(self) -> Self:
        """Start the thread; returns once everything is compiled.

        Raises:
            RuntimeError: it is open already.
        """
        if self._is_open:
            raise RuntimeError("expected a closed engine; got one that is open, in engine; leave it first, or make another one")
        self._renew()
        self._loop = asyncio.get_running_loop()
        self._is_open, self._ended = True, None
        self._thread_ended = self._loop.create_future()
        self._loading = asyncio.Lock()
        # A daemon, so that a step that never returns cannot keep the process from ending.
        self._thread = threading.Thread(target=self._run, args=(self._worker, self._thread_ended), name=THREAD, daemon=True)
        opened = self._expect(self._worker)
        self._thread.start()
        try:
            await opened
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """End the thread after the step it is in; pending requests raise. A cancellation waits for that step too."""
        if not self._is_open:
            return
        self._ended = self._ended or RuntimeError("the engine was closed")
        self._mailbox.close()
        try:
            await asyncio.shield(self._thread_ended)
        finally:
            self._thread.join()
            self._stop(self._ended)
            self._is_open = False

    @property
    def has_ended(self) -> bool:
        """Whether it answers nobody: it is closed, or its thread has died."""
        return self._ended is not None

    async def wait_ended(self) -> None:
        """Wait until it answers nobody any more. Of an engine that was entered."""
        await asyncio.shield(self._thread_ended)

    @property
    def mesh(self) -> Mesh | None:
        """Devices of its own; ``None`` where it computes where the model lies."""
        return self._mesh

    @property
    def context_length(self) -> int:
        """Most tokens of context and continuation together."""
        return self.config.context_length

    @property
    def prefill_buckets(self) -> tuple[int, ...]:
        """Numbers of rows that prefill steps of this engine have. Of an open engine."""
        return self._device.prefill_buckets

    async def sample(self, request: SampleRequest, heard: Heard | None = None) -> Sample:
        """Sample a continuation; requests beyond the number of slots wait in order, those of one session for each other.

        Cancelling frees the slot before the next step; what was sampled is lost, what was cached stays with the session.

        Args:
            request: see ``SampleRequest``.
            heard: called with each token as it comes, but for the last, with which ``sample`` returns.

        Raises:
            ValueError: the context leaves no room for a single token, or a field is out of range.
            FloatingPointError: a log-probability was not finite.
            PolicyEnded: the engine is closed, or its thread died; the cause is attached.
        """
        self._check(request)
        job = Job(request, request_key(request.key), Stops(request, self._decode), heard=heard)
        future = self._expect(job)
        self._mailbox.post(functools.partial(self._worker.schedule.submit, job))
        try:
            return await future
        except asyncio.CancelledError:
            self._pending.pop(job, None)
            self._mailbox.post(functools.partial(self._worker.cancel, job))
            raise

    def release(self, session: str) -> None:
        """The episode is over: its slot may go to anyone. Unknown sessions are ignored."""
        self._mailbox.post(functools.partial(self._worker.schedule.release, session))

    def abort(self, session: str) -> None:
        """End what the session is sampling, at the next step: ``sample`` returns what there is, with the reason ``aborted``."""
        self._mailbox.post(functools.partial(self._worker.abort, session))

    def pause(self) -> None:
        """Make no step before ``resume``. What is being sampled stays where it is; loads and aborts go on."""
        self._mailbox.post(functools.partial(self._worker.hold, True))

    def resume(self) -> None:
        """Go on where ``pause`` stopped."""
        self._mailbox.post(functools.partial(self._worker.hold, False))

    async def load(self, weights: Weights, version: int) -> None:
        """Swap parameters without compiling; returns when they are in force.

        Loads are taken one at a time, in the order of the calls; versions may be skipped. Version 0 begins a new line of
        versions and is taken whatever is in force. With ``swap="token"`` that is between two steps: running requests go on and
        their further tokens carry the new version. With ``swap="episode"`` it is once every session that has begun is released.
        A cancelled load is given up, or in force already; ``statistics().version`` tells.

        Parameters are those of the model, all of them, or exactly its adapters while the rest stays. Where the engine has
        another mesh or type than the model, they are cast and sent there beside the steps.

        Raises:
            ValueError: a parameter is missing, unknown or of another shape or dtype (all are named), or the version is no
                version, or lower than the one in force and not 0. The old version stays in force.
            RuntimeError: the parameters could not be copied, the old version stays in force; or the engine is closed, or its
                thread died. The cause is attached.
        """
        self._refuse_if_ended()
        if (problem := version_problem(version)) is not None:
            raise ValueError(f"{problem}; in engine.load")
        parameters = self._device.parameters
        leaves = parameters.matching(weights.parameters)
        async with self._loading:
            # Neither what is still being computed nor what must travel may hold up the decode step that would read it first.
            if not parameters.is_placed(leaves):
                leaves = await asyncio.to_thread(parameters.place, leaves)
            load = Load(leaves, version)
            future = self._expect(load)
            self._mailbox.post(functools.partial(self._worker.load, load))
            try:
                await future
            finally:
                self._pending.pop(load, None)
                self._mailbox.post(functools.partial(self._worker.abandon, load))

    async def scramble(self, parameters: Any) -> None:
        """Put random numbers in force in place of parameters, past the way that loads take; see ``verify.py``.

        Args:
            parameters: those to replace, by name; their values do not matter.

        Raises:
            ValueError: they do not fit the engine's model.
            RuntimeError: the engine is closed, or its thread died.
        """
        self._refuse_if_ended()
        scramble = Scramble(self._device.parameters.matching(parameters))
        future = self._expect(scramble)
        self._mailbox.post(functools.partial(self._worker.scramble, scramble))
        await future

    @property
    def decode_buckets(self) -> tuple[int, ...]:
        """Numbers of rows that decode steps of this engine have. Of an open engine."""
        return self._device.decode_buckets

    @property
    def parameters(self) -> nnx.State:
        """What is in force, in the engine's type and on its devices. Of an open engine; to read."""
        return self._device.parameters.tree

    @property
    def programs(self) -> Mapping[str, Any]:
        """What its steps run, compiled, by name and shape. Of an open engine; to read."""
        return self._device.programs

    @property
    def arrays(self) -> Mapping[str, Any]:
        """What it has on its devices, by what it is. Of an open engine that samples nothing at the moment; to read."""
        return self._device.arrays

    def statistics(self) -> EngineStatistics:
        """Counters since the engine opened."""
        return self._worker.statistics()

    def _check(self, request: SampleRequest) -> None:
        problem = request_problem(request, self.config.context_length, self._vocab_size, reads_text=self._decode is not None)
        if problem is not None:
            raise ValueError(f"{problem}; in engine.sample, session {request.session!r}")

    def _expect(self, ticket: object) -> asyncio.Future[Any]:
        """A future for what the thread will report under this ticket."""
        self._refuse_if_ended()
        self._pending[ticket] = self._loop.create_future()
        return self._pending[ticket]

    def _refuse_if_ended(self) -> None:
        if self._ended is not None:
            raise self._refusal(self._ended)

    def _renew(self) -> None:
        """What one entering lasts: a closed mailbox and a worker with a past are of no use to the next."""
        self._device = Device(self._model, self.config, self._mesh)
        self._mailbox = Mailbox()
        self._worker = Worker(self._device, self.config, self._version, self._mailbox, self._report, self._name)

    def _run(self, worker: Worker, ended: asyncio.Future[None]) -> None:
        """Body of the thread. However it ends, the loop hears of it: nobody may wait for a thread that is gone."""
        reason: BaseException = RuntimeError("its thread came to an end")
        try:
            worker.run()
        except BaseException as error:
            reason = error
        finally:
            self._loop.call_soon_threadsafe(self._thread_is_over, ended, reason)

    def _thread_is_over(self, ended: asyncio.Future[None], reason: BaseException) -> None:
        ended.set_result(None)
        # Otherwise a later entering owns what is pending now.
        if ended is self._thread_ended:
            self._stop(reason)

    def _report(self, ended: list[tuple[object, object]]) -> None:
        """Called on the thread: hand outcomes over, all of one round at once."""
        self._loop.call_soon_threadsafe(self._settle, ended)

    def _settle(self, ended: list[tuple[object, object]]) -> None:
        for ticket, outcome in ended[:WOKEN_AT_ONCE]:
            future = self._pending.get(ticket)
            # Gone or done: its caller was cancelled while the outcome was on its way.
            if future is None or future.done():
                continue
            if isinstance(outcome, Token) and isinstance(ticket, Job):
                assert ticket.heard is not None
                ticket.heard(outcome)
                continue
            del self._pending[ticket]
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
        if len(ended) > WOKEN_AT_ONCE:
            self._loop.call_soon(self._settle, ended[WOKEN_AT_ONCE:])

    def _stop(self, reason: BaseException) -> None:
        """Nothing will be reported any more: whoever waits, and whoever asks later, learns why."""
        self._ended = self._ended or reason
        pending, self._pending = self._pending, {}
        for future in pending.values():
            if not future.done():
                future.set_exception(self._refusal(self._ended))

    @staticmethod
    def _refusal(reason: BaseException) -> PolicyEnded:
        refusal = PolicyEnded(f"expected a running engine; got one that has ended: {reason!r}; in engine; see the cause")
        refusal.__cause__ = reason
        return refusal
