"""Inside the process of an environment: it is made here at the first reset, and asked one thing after the other.

A second thread listens, so that the end of the parent is heard while the environment hangs: the whole process group ends then.
"""

import asyncio
import functools
import os
import pickle
import signal
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any, NoReturn

import msgspec

from flow.by_path import load_by_path
from flow.elsewhere import Teller
from stages.envs.blanked_env import BlankedEnv
from stages.envs.context_desk import Terms
from stages.envs.environment import Environment, Opening
from stages.envs.housed import Housed, MakeEnv
from stages.envs.remote_context import RemoteContext
from stages.envs.shown_tool import ShownTool
from stages.records import Task
from stages.tools.context import tool_context_with
from stages.tools.credentials import Uses, blanked_errors, uses_into
from stages.tools.tool import needs_of

_Asked = tuple[str, tuple[Any, ...], Terms]
"""A method and its arguments."""


def serve(connection: Connection, pickled: bytes, files: Mapping[str, str]) -> None:
    """Answer until told to close, or until the other end is gone.

    Args:
        connection: to the parent.
        pickled: makes the environment.
        files: modules that it needs and that are not found by name; see ``flow.by_path``.
    """
    os.setsid()
    asyncio.run(_Child(connection, _found(pickled, files)).serve())


def _found(pickled: bytes, files: Mapping[str, str]) -> MakeEnv:
    """What makes the environment; where it cannot be had here, making one tells why."""
    try:
        load_by_path(files)
        return pickle.loads(pickled)
    # Whatever importing somebody's module does.
    except Exception as error:
        return functools.partial(_cannot_make, error)


def _cannot_make(error: Exception, task: Task) -> NoReturn:
    raise error


class _Child:
    def __init__(self, connection: Connection, make: MakeEnv) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._context = RemoteContext(self._send)
        self._housed = Housed(make)
        self._teller = Teller(lambda shown: self._send(("shows", shown)), self._housed.is_home)
        self._env: Environment | None = None
        # Here, since the parent does not know what is used in this process.
        self._uses = Uses({})

    async def serve(self) -> None:
        asked: asyncio.Queue[_Asked] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._listen, args=(loop, asked), daemon=True).start()
        method = ""
        while method != "close":
            method, args, terms = await asked.get()
            try:
                with uses_into(self._uses), blanked_errors(), self._teller.telling(terms.heard, anew=method == "reset"):
                    answer: tuple[str, Any] = ("gave", await self._answer(method, args, terms))
            except Exception as error:
                answer = ("raised", _portable(error))
            self._say(answer)

    def _send(self, message: tuple[Any, ...]) -> None:
        with self._sending:
            self._connection.send(message)

    def _say(self, answer: tuple[str, Any]) -> None:
        try:
            self._send(answer)
        except (pickle.PicklingError, TypeError, AttributeError) as error:  # nothing was sent yet
            told = f"expected an answer that can go to another process; got {type(answer[1]).__name__}: {error}"
            self._send(("raised", TypeError(told)))

    def _listen(self, loop: asyncio.AbstractEventLoop, asked: "asyncio.Queue[_Asked]") -> None:
        try:
            while True:
                message = self._connection.recv()
                if message[0] == "answers":
                    self._context.hear(*message[1:])
                else:
                    loop.call_soon_threadsafe(asked.put_nowait, message)
        except (EOFError, OSError, RuntimeError):
            _end()

    async def _answer(self, method: str, args: tuple[Any, ...], terms: Terms) -> Any:
        if method == "close":
            return await self._housed.close()
        with tool_context_with(**self._context.fields(terms)):
            if method == "reset":
                return await self._reset(*args)
            assert self._env is not None
            return await getattr(self._env, method)(*args)

    async def _reset(self, task: Task, key: tuple[int, int, int, int]) -> Opening:
        if self._env is None:
            self._env = BlankedEnv(await self._housed.open(task))
        opening = await self._env.reset(task, key)
        tools = tuple(ShownTool(tool.name, tool.description, tool.parameters, dict(needs_of(tool))) for tool in opening.tools)
        return msgspec.structs.replace(opening, tools=tools)


def _portable(error: Exception) -> Exception:
    """The error, where it survives the way; otherwise its type and text."""
    try:
        pickle.loads(pickle.dumps(error))
    # Whatever a class of somebody's does when it is pickled.
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _end() -> NoReturn:
    os.killpg(0, signal.SIGKILL)
    raise SystemExit(1)
