"""Inside the process of an environment: it is made here at the first reset, and asked one thing after the other.

A second thread listens, so that the end of the parent is heard while the environment hangs: the whole process group ends then.
"""

import asyncio
import os
import pickle
import signal
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any, NoReturn

import msgspec

from stages.envs.blanked_env import BlankedEnv
from stages.envs.environment import Environment, Opening
from stages.envs.housed import Housed, MakeEnv
from stages.records import Task
from stages.tools.credentials import Uses, blanked_errors, uses_into
from stages.tools.tool import ToolAnswer, failure


class ShownTool(msgspec.Struct, frozen=True):
    """What is shown of a tool that stays with its environment."""

    name: str
    description: str
    parameters: dict[str, Any]

    async def call(self, arguments: Mapping[str, Any], key: tuple[int, ...]) -> ToolAnswer:
        """Nothing: the environment executes it, in its process."""
        return failure("it runs in its environment's process only")


def serve(connection: Connection, make: MakeEnv) -> None:
    """Answer until told to close, or until the other end is gone.

    Args:
        connection: to the parent.
        make: makes the environment.
    """
    os.setsid()
    asyncio.run(_Child(connection, make).serve())


class _Child:
    def __init__(self, connection: Connection, make: MakeEnv) -> None:
        self._connection = connection
        self._housed = Housed(make)
        self._env: Environment | None = None
        # Here, since the parent does not know what is used in this process.
        self._uses = Uses({})

    async def serve(self) -> None:
        asked: asyncio.Queue[tuple[str, tuple[Any, ...]]] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._listen, args=(loop, asked), daemon=True).start()
        method = ""
        while method != "close":
            method, args = await asked.get()
            try:
                with uses_into(self._uses), blanked_errors():
                    answer: tuple[str, Any] = ("gave", await self._answer(method, args))
            except Exception as error:
                answer = ("raised", _portable(error))
            self._say(answer)

    def _say(self, answer: tuple[str, Any]) -> None:
        try:
            self._connection.send(answer)
        except (pickle.PicklingError, TypeError, AttributeError) as error:  # nothing was sent yet
            told = f"expected an answer that can go to another process; got {type(answer[1]).__name__}: {error}"
            self._connection.send(("raised", TypeError(told)))

    def _listen(self, loop: asyncio.AbstractEventLoop, asked: "asyncio.Queue[tuple[str, tuple[Any, ...]]]") -> None:
        try:
            while True:
                loop.call_soon_threadsafe(asked.put_nowait, self._connection.recv())
        except (EOFError, OSError, RuntimeError):
            _end()

    async def _answer(self, method: str, args: tuple[Any, ...]) -> Any:
        if method == "close":
            return await self._housed.close()
        if method == "reset":
            return await self._reset(*args)
        assert self._env is not None
        return await getattr(self._env, method)(*args)

    async def _reset(self, task: Task, key: tuple[int, int, int, int]) -> Opening:
        if self._env is None:
            self._env = BlankedEnv(await self._housed.open(task))
        opening = await self._env.reset(task, key)
        tools = tuple(ShownTool(tool.name, tool.description, tool.parameters) for tool in opening.tools)
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
