"""Environments that are used again: reset instead of made anew, never more than so many at once.

Not for environments that are cheap to make. One that failed, or was cut short in a call, is thrown away, and another is made
when one is wanted. Given to the episode stage in place of a function that makes environments; the stage closes what is idle
when its run is over.
"""

import asyncio
import logging
from collections import deque

import anyio

from stages.cancellation import to_the_end
from stages.envs.environment import Environment, Opening, Reply
from stages.envs.housed import Housed, MakeEnv
from stages.records import Message, Task
from stages.tools.credentials import Uses, blanked_errors, used_secrets, uses_into

_LOG = logging.getLogger("headrace")


class EnvPool:
    """A bounded number of environments."""

    def __init__(self, make: MakeEnv, size: int, *, close_s: float = 30.0):
        """Make an empty one.

        Args:
            make: makes an environment; which task it is made for must not matter, since others follow.
            size: most environments at once, lent and idle together; who wants another waits, in order.
            close_s: most seconds for closing one that is thrown away.

        Raises:
            ValueError: a size below 1.
        """
        if size < 1:
            raise ValueError(f"expected at least one environment, got size={size}, in EnvPool; give it more")
        self._make = make
        self._size = self._free = size
        self._close_s = close_s
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._idle: list[tuple[Housed, Environment]] = []
        self.num_made = 0

    @property
    def num_idle(self) -> int:
        """Environments that are made and not lent."""
        return len(self._idle)

    @property
    def num_lent(self) -> int:
        """Environments that are lent, or being made to be."""
        return self._size - self._free

    async def take(self, task: Task) -> Environment:
        """Lend an environment; its ``close`` gives it back.

        Raises:
            Exception: as raised by making it. The pool is no smaller for it.
        """
        await self._wait_for_room()
        try:
            housed, env = self._idle.pop() if self._idle else await self._made(task)
        except BaseException:
            self._leave()
            raise
        used_secrets().update(housed.secrets)
        return LentEnv(self, housed, env)

    async def close(self) -> None:
        """Close what is idle; what cannot be closed is told to the log. What is lent comes back to an open pool."""
        idle, self._idle = self._idle, []
        closed = await asyncio.gather(*(self._throw_away(housed) for housed, _ in idle), return_exceptions=True)
        for problem in closed:
            if problem is not None:
                _LOG.warning("an idle environment of a pool could not be closed: %r", problem)

    async def give_back(self, housed: Housed, env: Environment, *, sound: bool) -> None:
        """Take an environment back; called by ``LentEnv``.

        Args:
            housed: its place.
            env: the environment.
            sound: whether it can be used again; otherwise it is closed.
        """
        try:
            housed.secrets.update(used_secrets())
            if sound:
                self._idle.append((housed, env))
            else:
                await self._throw_away(housed)
        finally:
            self._leave()

    async def _made(self, task: Task) -> tuple[Housed, Environment]:
        housed = Housed(self._make)
        self.num_made += 1
        try:
            return housed, await housed.open(task)
        except BaseException:
            await to_the_end(self._throw_away(housed))
            raise

    async def _throw_away(self, housed: Housed) -> None:
        housed.secrets.update(used_secrets())
        with uses_into(Uses(housed.secrets)), blanked_errors(), anyio.fail_after(self._close_s):
            await housed.close()

    async def _wait_for_room(self) -> None:
        if self._free and not self._waiting:
            self._free -= 1
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            else:  # the room was granted in the same moment
                self._leave()
            raise

    def _leave(self) -> None:
        """Hand the room on to who waits longest."""
        waiter = next((waiter for waiter in self._waiting if not waiter.done()), None)
        if waiter is None:
            self._free += 1
        else:
            self._waiting.remove(waiter)
            waiter.set_result(None)


class LentEnv:
    """An environment of a pool, for one episode."""

    def __init__(self, pool: EnvPool, housed: Housed, env: Environment):
        """Lend one.

        Args:
            pool: where it goes back to.
            housed: its place.
            env: the environment.
        """
        self._pool = pool
        self._housed = housed
        self._env = env
        self._sound = True

    async def reset(self, task: Task, key: tuple[int, int, int, int]) -> Opening:
        """See ``Environment.reset``."""
        self._sound = False  # until it has returned: raised, or cut short, it may be anywhere
        opening = await self._env.reset(task, key)
        self._sound = True
        return opening

    async def step(self, message: Message) -> Reply:
        """See ``Environment.step``."""
        self._sound = False
        reply = await self._env.step(message)
        self._sound = True
        return reply

    async def score(self) -> dict[str, float] | None:
        """See ``Environment.score``."""
        self._sound = False
        parts = await self._env.score()
        self._sound = True
        return parts

    async def close(self) -> None:
        """Give it back, or throw it away where it failed."""
        await self._pool.give_back(self._housed, self._env, sound=self._sound)
