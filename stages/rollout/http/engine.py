"""The policy over servers: the protocol of the in-process engine, spoken to services.

This file is what an episode sees: requests that are repeated until they are answered, ended, continued over a change of
weights. Who answers them is ``fleet.py``; what a server is, ``server.py``; what is said to it, ``wire.py`` and ``dialects/``.

Exactness: over ``headrace serve`` a request has the tokens that the engine in this process would give it, since the key of its
draws goes with it. Others draw by rules of their own. Whatever is sent again has the same name, so a server that knows names
(all but llama.cpp's) never samples for two at once.
"""

import asyncio
import contextlib
import itertools
import operator
import random
import secrets
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Literal, Self

import anyio
import jax
import msgspec
import numpy as np
from flax import nnx

from stages.models.transformer import Transformer
from stages.policy import PolicyEnded, Sample, SampleRequest
from stages.records import Weights
from stages.rollout.config import EngineConfig
from stages.rollout.http.config import HttpConfig
from stages.rollout.http.dialects.dialect import Answer, Dialect
from stages.rollout.http.dialects.llama import LlamaDialect
from stages.rollout.http.dialects.openai import HeadraceDialect, VllmDialect
from stages.rollout.http.dialects.sglang import SglangDialect
from stages.rollout.http.fleet import Fleet
from stages.rollout.http.published import Published
from stages.rollout.http.server import Rerouted, Server, ServerStatus
from stages.rollout.http.wire import Busy, Declined, ServerError, Unreachable
from stages.rollout.requests import request_problem, version_problem
from stages.rollout.statistics import EngineStatistics

DIALECTS: dict[str, Dialect] = {
    "headrace": HeadraceDialect(), "vllm": VllmDialect(), "sglang": SglangDialect(), "llama": LlamaDialect(),
}  # fmt: skip
"""By name."""
RELEASED_WITHIN_S = 0.05
"""Seconds until a server is told that sessions are over."""


class _Flight:
    """A request that is being answered, over all of its attempts."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.parts: list[Answer] = []
        self.aborted = False
        self.attempt: anyio.CancelScope | None = None

    @property
    def num_sampled(self) -> int:
        """Tokens so far."""
        return sum(len(part.ids) for part in self.parts)

    def rest_of(self, request: SampleRequest) -> SampleRequest:
        """What is still to be asked."""
        if not self.parts:
            return request
        ids = np.concatenate([request.ids, *(part.ids for part in self.parts)]).astype(np.int32)
        return msgspec.structs.replace(request, ids=ids, max_tokens=request.max_tokens - self.num_sampled)


class HttpEngine:
    """Samples on servers; a ``stages.policy.Policy`` that takes weights.

    ``async with HttpEngine(config, model) as engine:`` meets the servers; leaving it closes connections and leaves the servers
    as they are. All methods are called from the loop that entered it.

    Args:
        config: see ``HttpConfig``.
        model: whose parameters are loaded, for the layout; ``None`` where none are.
        vocab_size: ids lie below it; ``None`` takes the model's, and without one none is checked.
    """

    mesh = None
    """It has no devices here."""

    def __init__(self, config: HttpConfig, model: Transformer | None = None, vocab_size: int | None = None) -> None:
        self._http, self._dialect, self._model = config, DIALECTS[config.dialect], model
        self.config = EngineConfig(slots=config.slots, context_length=config.context_length)
        self._vocab_size = vocab_size or (model.config.vocab_size if model is not None else 2**31 - 1)
        self._published = Published(model, config.weights) if model is not None and config.weights is not None else None
        self._ended: str | None = "it has not been entered"
        self._version, self._sampled = 0, 0
        self._loaded: Path | None = None

    async def __aenter__(self) -> Self:
        """Meet the servers.

        Raises:
            RuntimeError: none of them may work, or it is open already.
        """
        if self._ended is None:
            raise RuntimeError("expected a closed engine; got one that is open, in HttpEngine; leave it first")
        self._fleet = Fleet(self._http, self._dialect)
        self._flights: dict[str, list[_Flight]] = {}
        self._errands: set[asyncio.Task[Any]] = set()
        self._over: dict[Server, list[str]] = {}
        self._names, self._prefix = itertools.count(), secrets.token_hex(6)
        self._loading = asyncio.Lock()
        self._loaded = None
        self._opened = (
            [] if self._model is None or self._published is not None else jax.tree.leaves(nnx.state(self._model, nnx.Param))
        )
        await asyncio.gather(*(server.meet() for server in self._fleet.servers))
        told = [server.version for server in self._fleet.servers if server.state == "ready"]
        if not told:
            await self._close()
            raise RuntimeError(
                f"expected a server that answers; got none: {self._fleet.told()}; in servers.urls; start one, or mend it"
            )
        self._version = told[0] or 0
        for server in self._fleet.servers:
            server.due = told[0]
            if server.state == "ready" and server.version != told[0]:
                server.leave("refused", f"expected version {told[0]}, as the first server has; got {server.version}")
        self._ended = None
        self._looks = [asyncio.create_task(self._look_after(server)) for server in self._fleet.servers]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Close connections; pending requests raise."""
        if self._ended is not None:
            return
        self._tell_released()
        self._ended = "it was closed"
        for look in self._looks:
            look.cancel()
        await asyncio.gather(*self._looks, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._http.connect_s):
                await asyncio.gather(*self._errands, return_exceptions=True)
        await self._close()

    @property
    def context_length(self) -> int:
        """Most tokens of context and continuation together."""
        return self._http.context_length

    @property
    def has_ended(self) -> bool:
        """Whether it answers nobody."""
        return self._ended is not None

    def servers(self) -> tuple[ServerStatus, ...]:
        """How each server is, in the order of the settings."""
        return tuple(server.status() for server in self._fleet.servers)

    def statistics(self) -> EngineStatistics:
        """What is known here; what only servers know is 0."""
        ready = sum(server.under_way for server in self._fleet.servers)
        pending = sum(map(len, self._flights.values()))
        return EngineStatistics(
            steps=0, busy_slot_steps=0, sampled_tokens=self._sampled, prefilled_tokens=0, kept_tokens=0, shared_tokens=0,
            slots_busy=ready, waiting=max(pending - ready, 0), evictions=0, evicted_tokens=0, prefill_s=0.0, decode_s=0.0,
            compilations=0, loaded_bytes=0, version=self._version,
        )  # fmt: skip

    async def sample(self, request: SampleRequest) -> Sample:
        """Sample a continuation. Cancelling it closes the connection, by which the server frees the slot.

        Raises:
            ValueError: a field is out of range, or the servers' log-probabilities are others than it wants.
            RuntimeError: no server gave an answer in as many attempts as there are.
            PolicyEnded: it is closed, or no server may work.
        """
        self._check(request)
        flight = _Flight(f"{self._prefix}-{next(self._names)}")
        self._flights.setdefault(request.session, []).append(flight)
        try:
            return await self._answered(request, flight)
        finally:
            flights = self._flights[request.session]
            flights.remove(flight)
            if not flights:
                del self._flights[request.session]

    def release(self, session: str) -> None:
        """The episode is over: its cache may go. Unknown sessions are ignored."""
        if self._ended is not None or (server := self._fleet.forget(session)) is None:
            return
        if not self._over:
            asyncio.get_running_loop().call_later(RELEASED_WITHIN_S, self._tell_released)
        self._over.setdefault(server, []).append(session)

    def abort(self, session: str) -> None:
        """End what the session is sampling: ``sample`` returns what there is, with the reason ``aborted``."""
        server = self._fleet.home(session)
        for flight in self._flights.get(session, ()):
            flight.aborted = True
            self._run(self._end(flight, server))

    async def load(self, weights: Weights, version: int) -> None:
        """Give every server new weights; returns when those that took them have them in force.

        A server that did not take them has no work until it has; it is told in ``servers()`` and in the log.

        Raises:
            ValueError: the parameters do not fit the model, or the version is none.
            RuntimeError: no server took them, or there is no folder to hand them over in. Nobody has work then.
        """
        if (problem := version_problem(version)) is not None:
            raise ValueError(f"{problem}; in HttpEngine.load")
        if self._ended is not None:
            raise PolicyEnded(f"expected an open engine; got one that is not: {self._ended}; in HttpEngine.load")
        if self._published is None:
            if version == self._version and self._are_those_at_opening(weights):
                return
            raise RuntimeError(
                f"expected a folder to hand weights over in; got none, for version {version}, in HttpEngine.load; set "
                "servers.weights to one that the servers read"
            )
        async with self._loading:
            folder = await asyncio.to_thread(self._published.write, weights.parameters, version)
            self._loaded, self._version = folder, version
            # One that does not answer would hold up the others; it gets them when it is back.
            there = [server for server in self._fleet.servers if server.state != "down"]
            for server in self._fleet.servers:
                server.due = version if server.state == "down" else server.due
            took = await asyncio.gather(*(server.load(folder, version) for server in there))
        if not any(took):
            raise RuntimeError(
                f"expected a server that takes version {version}; got none: {self._fleet.told()}; in HttpEngine.load"
            )

    async def _answered(self, request: SampleRequest, flight: _Flight) -> Sample:
        told = "nothing"
        for attempt in itertools.count(1):
            if self._ended is not None:
                raise PolicyEnded(f"expected an open engine; got one that is not: {self._ended}; in HttpEngine.sample")
            if attempt > self._http.attempts + len(flight.parts):
                break
            try:
                reason = await self._attempt(request, flight)
            except Declined as error:
                raise RuntimeError(f"{error}; in HttpEngine.sample, session {request.session!r}") from error
            except ServerError as error:
                told = str(error)
                if not flight.aborted:
                    await asyncio.sleep(self._pause_s(attempt - len(flight.parts), error))
                    continue
                reason = "aborted"
            # A change of weights may have ended it, which nobody asked for: the rest is sampled by the new ones.
            if reason != "aborted" or flight.aborted:
                return self._made(request, flight, reason)
            if flight.num_sampled >= request.max_tokens:
                return self._made(request, flight, "length")
        raise RuntimeError(
            f"expected an answer in {self._http.attempts} attempts; got none, the last time: {told}; in HttpEngine.sample, "
            f"session {request.session!r}"
        )

    async def _attempt(self, request: SampleRequest, flight: _Flight) -> Literal["stop", "length", "aborted"]:
        """Ask one server for what is still wanted; tells how that ended.

        Raises:
            ServerError: there is no answer.
        """
        server = await self._fleet.choose(request.session)
        answer: Answer | None = None
        flight.attempt = anyio.CancelScope()
        try:
            with flight.attempt:
                answer = await server.sample(flight.rest_of(request), flight.name)
        except Unreachable:
            # One connection that broke says little of the server, and all of a server that was started anew.
            await server.meet()
            raise
        finally:
            flight.attempt = None
        if answer is None:
            return "aborted"
        if len(answer.ids):
            flight.parts.append(answer)
        elif not flight.aborted:
            raise Rerouted(f"expected a token; got a request that was ended before it had one, of {server.url}")
        return answer.stop_reason

    def _are_those_at_opening(self, weights: Weights) -> bool:
        """Whether weights are, array by array, what the model had when the engine was opened: what the servers have."""
        given = jax.tree.leaves(weights.parameters)
        return bool(given) and len(given) == len(self._opened) and all(map(operator.is_, given, self._opened))

    def _made(self, request: SampleRequest, flight: _Flight, reason: Any) -> Sample:
        """The sample of all parts."""
        parts = flight.parts or [_nothing(request)]
        first, last = parts[0], parts[-1]
        self._sampled += flight.num_sampled
        versions = [part.versions for part in parts if part.versions is not None]
        untempered = [part.untempered for part in parts if part.untempered is not None]
        return Sample(
            ids=np.concatenate([part.ids for part in parts]),
            logprobs=np.concatenate([part.logprobs for part in parts]),
            versions=np.concatenate(versions),
            stop_reason=reason,
            untempered=np.concatenate(untempered) if request.untempered and len(untempered) == len(parts) else None,
            num_cached=first.num_cached,
            queue_s=first.queue_s,
            prefill_s=first.prefill_s,
            decode_s=last.decode_s,
        )

    def _pause_s(self, attempts: int, error: ServerError) -> float:
        asked = error.after_s if isinstance(error, Busy) else None
        grown = self._http.backoff_s * 2 ** (attempts - 1)
        wanted = grown * random.uniform(0.5, 1.0) if asked is None else asked * random.uniform(1.0, 1.5)
        return min(wanted, self._http.max_backoff_s)

    def _tell_released(self) -> None:
        """Tell servers what will not come back: many sessions in one request, since each request costs milliseconds."""
        over, self._over = self._over, {}
        for server, sessions in over.items():
            if server.state == "ready" and self._ended is None:
                self._run(self._dialect.release(server.wire, sessions))

    async def _end(self, flight: _Flight, server: Server | None) -> None:
        if server is not None and await self._dialect.abort(server.wire, flight.name):
            return
        if flight.attempt is not None:
            flight.attempt.cancel()

    async def _look_after(self, server: Server) -> None:
        """Look at a server again and again: one that is back gets the weights of the others, and then work."""
        while True:
            await asyncio.sleep(self._http.health_s)
            if self._loading.locked():
                continue
            met = await server.meet()
            if not met and server.state == "refused" and self._loaded is not None and server.may_load:
                await server.load(self._loaded, self._version)

    def _check(self, request: SampleRequest) -> None:
        if self._ended is not None:
            raise PolicyEnded(f"expected an open engine; got one that is not: {self._ended}; in HttpEngine.sample")
        problem = request_problem(request, self.context_length, self._vocab_size, reads_text=True) or self._logprobs_problem(
            request
        )
        if problem is not None:
            raise ValueError(f"{problem}; in HttpEngine.sample, session {request.session!r}")

    def _logprobs_problem(self, request: SampleRequest) -> str | None:
        kind = self._http.logprobs or self._dialect.logprobs
        truncates = request.top_k > 0 or request.top_p < 1.0 or request.min_p > 0.0
        tempers = request.temperature not in (0.0, 1.0)
        if kind in ("processed", "any") or not (truncates or (tempers and kind == "raw")):
            return None
        return (
            f"expected a request whose log-probabilities the servers tell ({kind}: "
            f"{'temperature 0 or 1, ' if kind == 'raw' else ''}nothing truncated); got temperature={request.temperature:g}, "
            f"top_k={request.top_k}, top_p={request.top_p:g}, min_p={request.min_p:g}; sample so, or set servers.logprobs to "
            "what the servers were started with, or to any for evaluation"
        )

    def _run(self, errand: Coroutine[Any, Any, Any]) -> None:
        """Do something that nobody waits for. What a server says to it changes nothing."""

        async def done() -> None:
            with contextlib.suppress(ServerError):
                await errand

        task = asyncio.get_running_loop().create_task(done())
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    async def _close(self) -> None:
        await asyncio.gather(*(server.close() for server in self._fleet.servers))


def _nothing(request: SampleRequest) -> Answer:
    none = np.zeros(0, np.float32)
    integers = none.astype(np.int32)
    return Answer(integers, none, "aborted", integers.copy(), none.copy() if request.untempered else None)
