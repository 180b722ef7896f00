"""One server of a fleet: whether it may be given work, the requests it has, and how it takes new weights.

A server is believed only as far as it was asked: one that did not load a version, or answers under another, has no work until
it has loaded the version of the others, and says so in its status.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import anyio
import msgspec
import numpy as np

from stages.policy import SampleRequest
from stages.rollout.http.config import HttpConfig
from stages.rollout.http.dialects.dialect import Answer, Dialect
from stages.rollout.http.wire import Declined, ServerError, Unreachable, Wire

State = Literal["ready", "loading", "down", "refused"]
MOST_BETWEEN_LOADS_S = 60.0
"""Most seconds before a server that did not take its weights is given them again."""
_LOG = logging.getLogger("headrace")


class ServerStatus(msgspec.Struct, frozen=True):
    """How a server is."""

    url: str
    state: State
    """``ready`` has work; ``loading`` takes new weights; ``down`` does not answer; ``refused`` is not what it should be."""
    reason: str
    """Why it is not ready; empty where it is."""
    version: int | None
    """Version of the weights that it was last known to have; ``None`` where it never told."""
    under_way: int
    """Requests that it has."""
    answered: int
    """Requests that it answered."""
    failed: int
    """Attempts that came to nothing."""


class Rerouted(ServerError):
    """A request was taken back from a server, or its answer is not believed; another may answer it, or the same one later."""


class Server:
    """Of one engine, on its loop.

    Args:
        url: of the server.
        config: see ``HttpConfig``.
        dialect: its kind.
        changed: called when its state has changed.
    """

    def __init__(self, url: str, config: HttpConfig, dialect: Dialect, changed: Callable[[], object]) -> None:
        self.url, self._config, self._dialect, self._changed = url, config, dialect, changed
        self.wire = Wire(url, config)
        self.version: int | None = None
        self.due: int | None = None
        """Version that it must have; ``None`` for whichever it has."""
        self.state: State = "down"
        self.reason = "it was not asked yet"
        self._calls: set[anyio.CancelScope] = set()
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._asking = asyncio.Lock()
        self._answered = self._failed = self._unloaded = 0
        self._load_again_s = 0.0
        self._model = config.model or ""

    @property
    def under_way(self) -> int:
        """Requests that it has."""
        return len(self._calls)

    def status(self) -> ServerStatus:
        """How it is, now."""
        counts = (self.under_way, self._answered, self._failed)
        return ServerStatus(self.url, self.state, self.reason, self.version, *counts)

    async def sample(self, request: SampleRequest, name: str) -> Answer:
        """Ask it once. Cancelling it closes the connection.

        Raises:
            ValueError: such a request cannot be asked of this kind of server.
            Rerouted: the request was taken back, or the answer is of weights that should not be in force.
            ServerError: it gave none.
        """
        path, body = self._dialect.question(request, name, self._model)
        before = self.version
        try:
            told = await self._called(path, body, name)
            answer = self._checked(self._dialect.answer(told, request), before)
        except ServerError:
            self._failed += 1
            raise
        self._answered += 1
        return answer

    async def meet(self) -> bool:
        """Ask who it is. It is ready where it is well and has the version that it must have.

        Returns:
            Whether it is ready.
        """
        async with self._asking:
            try:
                async with asyncio.timeout(self._config.connect_s * 2):
                    await self._dialect.check_health(self.wire)
                    self._model = self._config.model or await self._dialect.model(self.wire)
                    told = await self._dialect.version(self.wire)
            except (ServerError, TimeoutError) as error:
                return self.leave("refused" if isinstance(error, Declined) else "down", str(error) or "it does not answer")
            self.version = told
            if self.due is not None and told != self.due and (told is not None or self._dialect.takes_weights):
                return self.leave("refused", f"expected version {self.due}, which is in force; got {told}")
            self._set("ready", "")
            return True

    async def load(self, folder: Path, version: int) -> bool:
        """Give it new weights, and ask whether it has them.

        Returns:
            Whether it is ready with them. If not, it has no work, and what it had is taken back.
        """
        async with self._asking:
            self.due = version
            self._set("loading", f"it takes version {version}")
            try:
                async with asyncio.timeout(self._config.load_s):
                    await self._dialect.pause(self.wire)
                    if not self._dialect.goes_on:
                        await self._drained()
                    await self._dialect.load(self.wire, folder, version)
                    told = await self._dialect.version(self.wire)
                    if told != version:
                        raise Declined(f"expected that it tells this version after its load; got {told}")
                    # Before it goes on: what it samples from then on is of this version.
                    self.version = version
                    await self._dialect.resume(self.wire)
            except (ServerError, TimeoutError) as error:
                self._unloaded += 1
                wait_s = min(self._config.health_s * 2**self._unloaded, MOST_BETWEEN_LOADS_S)
                self._load_again_s = asyncio.get_running_loop().time() + wait_s
                reason = f"version {version} was not loaded: {str(error) or 'it took too long'}"
                return self.leave("down" if isinstance(error, Unreachable) else "refused", reason)
            self._unloaded = 0
            self._set("ready", "")
            return True

    @property
    def may_load(self) -> bool:
        """Whether it is time to give it again what it did not take."""
        return asyncio.get_running_loop().time() >= self._load_again_s

    def leave(self, state: Literal["down", "refused"], reason: str) -> Literal[False]:
        """Give it no work, and take back what it has."""
        if (self.state, self.reason) != (state, reason):
            _LOG.warning("%s gets no work: %s", self.url, reason)
        self._set(state, reason)
        self._take_back()
        return False

    async def close(self) -> None:
        """Close its connections; what it has is taken back."""
        self._take_back()
        await self._quiet.wait()
        await self.wire.close()

    async def _called(self, path: str, body: dict[str, Any], name: str) -> Any:
        scope = anyio.CancelScope()
        self._calls.add(scope)
        self._quiet.clear()
        try:
            with scope:
                return await self.wire.post(path, body, name)
        finally:
            self._calls.discard(scope)
            if not self._calls:
                self._quiet.set()
        raise Rerouted(f"expected an answer of {self.url}; got none before it was {self.state}: {self.reason}")

    async def _drained(self) -> None:
        """Wait for what a pause has ended. What it does not give back in time is taken back."""
        with anyio.move_on_after(self._config.connect_s):
            await self._quiet.wait()
        self._take_back()
        await self._quiet.wait()

    def _take_back(self) -> None:
        for scope in self._calls:
            scope.cancel()

    def _checked(self, answer: Answer, before: int | None) -> Answer:
        """An answer with the versions of its tokens.

        Args:
            answer: as the server gave it.
            before: version when it was asked.
        """
        now, told = self.version, answer.versions
        if told is None:
            # Such a server ends what is under way before it takes new weights.
            return msgspec.structs.replace(answer, versions=np.full(len(answer.ids), before or 0, np.int32))
        if before is None and now is None:
            return answer
        least, most = min(before or 0, now or 0), max(before or 0, now or 0)
        if len(told) and (told.min() < least or told.max() > most):
            self.leave("refused", f"expected tokens of version {most}; got some of {told.min()} to {told.max()}")
            raise Rerouted(f"{self.url}: {self.reason}")
        return answer

    def _set(self, state: State, reason: str) -> None:
        if self.state in ("down", "refused") and state == "ready" and (self._answered or self._failed):
            _LOG.warning("%s has work again", self.url)
        self.state, self.reason = state, reason
        self._changed()
