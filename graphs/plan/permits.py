"""What tools hold of the pools of a graph, call by call: noted in a real run, and held again in virtual time.

A wait for a pool follows from its size and from who else is there, so it must not be part of what is played again: only what a
call held, and how long.
"""

import asyncio
import contextlib
import inspect
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flow import Context
from stages.envs.environment import Environment, Opening, Reply
from stages.envs.housed import MakeEnv
from stages.records import Message, Task
from stages.tools.context import tool_context, tool_context_with

Step = tuple[int, int, int]
"""Birth number of the group, member, and number of the step of its environment."""


@dataclass(frozen=True)
class Hold:
    """Units that one call held.

    Attributes:
        needs: units by pool, and starts by rate.
        asked_s: loop time.
        granted_s: loop time.
        freed_s: loop time.
    """

    needs: Mapping[str, int]
    asked_s: float
    granted_s: float
    freed_s: float


Holds = dict[Step, list[Hold]]


def noting(make: MakeEnv, holds: Holds) -> MakeEnv:
    """What makes environments whose permits are noted.

    Args:
        make: makes them. One that lives in a thread of its own is left as it is: it has no permits.
        holds: gets what each step held.
    """

    async def make_noted(task: Task) -> Any:
        made = make(task)
        env: Any = await made if inspect.isawaitable(made) else made
        return _NotedEnv(env, holds) if inspect.iscoroutinefunction(env.step) else env

    return make_noted if inspect.iscoroutinefunction(make) else make


class _NotedEnv:
    """An environment, and somebody who notes what its steps hold."""

    def __init__(self, env: Environment, holds: Holds) -> None:
        self._env, self._holds = env, holds
        self._birth, self._member, self._steps = 0, 0, 0

    async def reset(self, task: Task, key: tuple[int, int, int, int]) -> Opening:
        """See ``Environment``."""
        _, self._birth, self._member, _ = key
        return await self._env.reset(task, key)

    async def step(self, message: Message) -> Reply:
        """See ``Environment``."""
        held, permit = list[Hold](), tool_context().permit

        @contextlib.asynccontextmanager
        async def noted(needs: Mapping[str, int]) -> AsyncGenerator[None]:
            now = asyncio.get_running_loop().time
            asked = now()
            async with permit(needs):
                granted = now()
                try:
                    yield
                finally:
                    held.append(Hold(dict(needs), asked, granted, now()))

        try:
            with tool_context_with(permit=noted):
                return await self._env.step(message)
        finally:
            if held:
                self._holds[self._birth, self._member, self._steps] = held
            self._steps += 1

    async def score(self) -> dict[str, float] | None:
        """See ``Environment``."""
        return await self._env.score()

    async def close(self) -> None:
        """See ``Environment``."""
        await self._env.close()


async def held_again(seconds: float, holds: Sequence[Hold], context: Context) -> None:
    """Let a step of an environment pass in virtual time.

    Args:
        seconds: it took.
        holds: what its calls held. Those that overlapped do so again.
        context: of the attempt.
    """
    spans = _overlapping(holds)
    with_permits = sum(max(hold.freed_s for hold in span) - min(hold.asked_s for hold in span) for span in spans)
    await asyncio.sleep(max(0.0, seconds - with_permits))
    for span in spans:
        await asyncio.gather(*(_hold(hold, context) for hold in span))


async def _hold(hold: Hold, context: Context) -> None:
    async with context.permit(hold.needs):
        await asyncio.sleep(hold.freed_s - hold.granted_s)


def _overlapping(holds: Sequence[Hold]) -> list[list[Hold]]:
    """Holds that were asked for or held at the same time, together; in order."""
    spans: list[list[Hold]] = []
    for hold in sorted(holds, key=lambda each: each.asked_s):
        if spans and hold.asked_s < max(each.freed_s for each in spans[-1]):
            spans[-1].append(hold)
        else:
            spans.append([hold])
    return spans
