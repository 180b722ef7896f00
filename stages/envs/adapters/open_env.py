"""An environment behind an OpenEnv server: one session over its WebSocket for each episode.

Speaks OpenEnv's own messages, so the ``openenv`` package is needed where the server runs and not here. A server takes as many
sessions as its ``max_concurrent_envs`` says: run no more episodes at once. It frees one a moment after its socket closed, for
which ``reset`` waits. Its MCP tools are for ``stages/tools``.

Source: OpenEnv 0.10, ``openenv/core/env_server/http_server.py``, endpoint ``/ws``.
"""

import contextlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import anyio

import flow
from stages.envs.adapters.key import seed_of
from stages.envs.adapters.spoken import spoken
from stages.envs.adapters.turns import InvalidActions
from stages.envs.environment import Opening, Reply
from stages.packages import optional_package
from stages.records import Message, Status, Task
from stages.tools.tool import bounded

MAX_FRAME_BYTES = 2**24
"""Most bytes of one message of a server."""

_PAUSE_S = 0.05


class OpenEnvError(RuntimeError):
    """The server failed, or is full: that says nothing about the policy."""


class OpenEnv:
    """One session.

    A turn has the reward that the server gave for it. Their sum is the score's part ``reward``; there is no score where it gave
    none.
    """

    def __init__(
        self,
        url: str,
        *,
        action: Callable[[str], Mapping[str, Any]] | None = None,
        describe: Callable[[Mapping[str, Any]], str] | None = None,
        max_invalid: int = 3,
        max_chars: int = 4000,
        room_s: float = 10.0,
    ):
        """Configure.

        Args:
            url: of the server, such as ``http://localhost:8000``.
            action: a turn's text -> the action's fields; raises ``ValueError`` for a text that is none. ``None`` sends
                ``{"message": text}``.
            describe: the observation's fields -> text for the model; ``None`` gives a line for each field.
            max_invalid: the episode ends after so many turns in a row that were no action, the server's word included.
            max_chars: most characters of a message.
            room_s: most seconds to wait for a server that is full.
        """
        self._room_s = room_s
        self._url = url.rstrip("/").replace("http", "ws", 1) + "/ws" if url.startswith("http") else url
        self._action = action or (lambda text: {"message": text})
        self._describe = describe or _fields
        self._max_invalid, self._max_chars = max_invalid, max_chars
        self._socket: Any = None

    async def reset(self, task: Task, key: tuple[int, int, int, int]) -> Opening:
        """See ``Environment.reset``. The server gets the seed, of the task or else of the key, and ``task.extra["reset"]``.

        Raises:
            MissingPackageError: the ``websockets`` package is not installed.
            OpenEnvError: the server cannot be reached, is full, or failed.
        """
        self._invalid, self._rewards = InvalidActions(self._max_invalid), []
        seed = task.extra.get("seed", seed_of(key))
        begun = await self._begin({"seed": seed, **task.extra.get("reset", {})})
        if begun["type"] != "observation":
            raise self._failed(_problem(begun))
        text = f"{task.prompt}\n\n{self._describe(begun['data']['observation'])}".strip()
        return Opening((Message("user", bounded(text, self._max_chars)),))

    async def step(self, message: Message) -> Reply:
        """See ``Environment.step``. OpenEnv says only that an episode is done; an observation with ``truncated`` tells a limit.

        Raises:
            OpenEnvError: the server failed.
        """
        if message.calls:
            return self._invalid.refuse(message, "an action as text", self._max_chars)
        try:
            action = self._action(message.content)
        except ValueError as error:
            return self._invalid.refuse(message, f"an action ({error})", self._max_chars)
        answer = await self._ask("step", action)
        if answer["data"].get("code") == "VALIDATION_ERROR":
            return self._invalid.refuse(message, f"an action of the environment ({_problem(answer)})", self._max_chars)
        if answer["type"] != "observation":
            raise self._failed(_problem(answer))
        self._invalid.accept()
        return self._read(answer["data"])

    async def score(self) -> dict[str, float] | None:
        """See ``Environment.score``."""
        return {"reward": sum(self._rewards)} if self._rewards else None

    async def close(self) -> None:
        """See ``Environment.close``. The server ends the session when its socket closes."""
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.close()

    def _read(self, answer: Mapping[str, Any]) -> Reply:
        observation = answer["observation"]
        reward = None if answer["reward"] is None else float(answer["reward"])
        if reward is not None:
            self._rewards.append(reward)
        replies = (Message("user", bounded(self._describe(observation), self._max_chars)),)
        if not answer["done"]:
            return Reply(replies, reward=reward)
        if observation.get("truncated") or answer.get("metadata", {}).get("truncated"):
            return Reply(replies, Status.TRUNCATED_TURNS, "cut by the environment's own limit", reward)
        return Reply(replies, Status.FINISHED, reward=reward)

    async def _begin(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Open a session; the server's answer to the reset, or the last refusal of one that stayed full."""
        client = optional_package("websockets.asyncio.client", "openenv", "OpenEnv")
        until = anyio.current_time() + self._room_s
        while True:
            try:
                with flow.span("network", kind="connect"):
                    self._socket = await client.connect(self._url, max_size=MAX_FRAME_BYTES)
            except (OSError, ValueError) as error:
                raise self._failed(f"{type(error).__name__}: {error}") from error
            begun = await self._ask("reset", settings)
            if begun["data"].get("code") != "CAPACITY_REACHED" or anyio.current_time() > until:
                return begun
            await self.close()
            await anyio.sleep(_PAUSE_S)

    async def _ask(self, kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        closed = optional_package("websockets.exceptions", "openenv", "OpenEnv").ConnectionClosed
        # A server that refuses a session says why and closes, maybe before anything was sent; what it said can still be read.
        with flow.span("network", kind=kind):
            with contextlib.suppress(closed):
                await self._socket.send(json.dumps({"type": kind, "data": fields}))
            try:
                return json.loads(await self._socket.recv())
            except closed as error:
                raise self._failed(f"{type(error).__name__}: {error}") from error

    def _failed(self, got: str) -> OpenEnvError:
        return OpenEnvError(f"expected an observation; got {got}, from the OpenEnv server at {self._url}; see the server's log")


def _fields(observation: Mapping[str, Any]) -> str:
    """Each field in a line; a single text alone; without what the server says of itself."""
    said = {name: part for name, part in observation.items() if name != "metadata" and part is not None}
    return spoken(next(iter(said.values())) if len(said) == 1 else said)


def _problem(answer: Mapping[str, Any]) -> str:
    fields = answer["data"]
    wrong = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in fields.get("errors", ())]
    return f"{fields.get('code', answer['type'])}: {'; '.join(wrong) or fields.get('message', '')}"
