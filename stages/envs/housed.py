"""One environment from its making to its closing: made once, closed once, with a thread of its own where it needs one.

Not the conversation with it. What is made after everybody gave up waiting is closed too. Called by the episode stage, and by
whatever else runs environments.
"""

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable

from stages.envs.custom import CustomEnv, hosted
from stages.envs.environment import Environment
from stages.envs.home_thread import HomeThread
from stages.exits import exits_as_errors
from stages.records import Task

MakeEnv = Callable[[Task], Environment | CustomEnv | Awaitable[Environment | CustomEnv]]
"""Makes the environment of one episode. A plain function runs in the environment's thread, which takes a fraction of a
millisecond; a coroutine function runs on the loop."""


def on_loop(make: Callable[[Task], Environment | CustomEnv]) -> MakeEnv:
    """A plain function that takes no time, as a coroutine function: no thread is started only to call it.

    Args:
        make: gives an environment at once, such as ``lambda task: ToolEnv(tools)``.
    """

    async def make_on_loop(task: Task) -> Environment | CustomEnv:
        return make(task)

    return make_on_loop


class Housed:
    """A place for one environment.

    Args:
        make: makes it.

    Attributes:
        secrets: that it has used in episodes before, with the name of each; kept by a pool.
    """

    def __init__(self, make: MakeEnv) -> None:
        self._make = make
        self._thread = HomeThread()
        self._making: asyncio.Task[Environment] | None = None
        self._in_thread = False
        # Between the loop that gives up and the thread that has just made something: one of them closes it.
        self._lock = threading.Lock()
        self._given_up = False
        self._unclosed: Environment | CustomEnv | None = None
        self.secrets: dict[str, str] = {}

    def is_home(self) -> bool:
        """Whether the calling thread is the environment's own."""
        return self._thread.is_current()

    async def open(self, task: Task) -> Environment:
        """Make the environment. Cancelled, it goes on being made: ``close`` waits for it."""
        self._making = asyncio.create_task(self._made(task))
        return await asyncio.shield(self._making)

    async def close(self) -> None:
        """Close what was made, or is being made, and end its thread.

        Cancelled, it gives up on a call that hangs in the thread; what comes of it is closed there.
        """
        try:
            env = await self._outcome()
            if env is not None:
                self._unclosed = None
                with exits_as_errors():
                    await env.close()
            self._thread.shutdown()
            await self._thread.ended()
        finally:
            with self._lock:
                self._given_up = True
                late, self._unclosed = self._unclosed, None
            if late is not None:
                self._thread.submit(_close_here, late)
            self._thread.shutdown()
            if self._making is not None:
                self._making.cancel()

    async def _outcome(self) -> Environment | None:
        """What was made; ``None`` where nothing was."""
        if self._making is None:
            return None
        if not self._in_thread:
            self._making.cancel()  # does nothing where it is done
        await asyncio.wait([self._making])
        failed = self._making.cancelled() or self._making.exception() is not None
        return None if failed else self._making.result()

    async def _made(self, task: Task) -> Environment:
        with exits_as_errors():  # out of a task, an exit would end the event loop
            return await self._made_by(task)

    async def _made_by(self, task: Task) -> Environment:
        if inspect.iscoroutinefunction(self._make):
            made = await self._make(task)
        else:
            self._in_thread = True
            try:
                made = await self._thread.call(self._make_here, task)
            finally:
                self._in_thread = False
            if inspect.isawaitable(made):
                made = await made
        return hosted(made, self._thread)

    def _make_here(self, task: Task) -> Environment | CustomEnv | Awaitable[Environment | CustomEnv]:
        made = self._make(task)
        if inspect.isawaitable(made):
            return made
        with self._lock:
            if not self._given_up:
                self._unclosed = made
                return made
        _close_here(made)
        return made


def _close_here(env: Environment | CustomEnv) -> None:
    """Close in this thread what nobody waits for any more."""
    closing = env.close()
    if inspect.isawaitable(closing):
        asyncio.run(_finish(closing))


async def _finish(closing: Awaitable[object]) -> None:
    await closing
