"""Delays of tools from a few lengths far apart, and episodes that fail at once: the same for whoever runs the same tasks.

Each is a pure function of a seed, the task, the member and the call, and of nothing that a system decides by itself, such as
the order of episodes or how often one was tried. So systems that share nothing but the tasks wait equally long for them.
"""

import hashlib
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Annotated, Any, Self

import anyio
from pydantic import BaseModel, ConfigDict, Field, model_validator

from stages.envs.environment import Environment, Opening, Reply
from stages.records import Message, Task
from stages.tools.tool import Tool, ToolAnswer, needs_of


class DelaysConfig(BaseModel):
    """How long the calls of a tool take."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seconds: tuple[Annotated[float, Field(ge=0)], ...] = (0.05, 0.5, 5.0)
    """Lengths, in seconds."""
    shares: tuple[Annotated[float, Field(gt=0)], ...] = (0.80, 0.16, 0.04)
    """How often each is drawn; they add up to 1. As they are, a call takes 0.32 s on average, and the rarest length makes up
    two thirds of that."""
    seed: int = Field(default=0, ge=0)
    """Of the draws."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(self.seconds) != len(self.shares) or abs(sum(self.shares) - 1.0) > 1e-6:
            raise ValueError(
                f"expected a share for each of {len(self.seconds)} lengths, 1 in all; got {len(self.shares)} that add up to "
                f"{sum(self.shares):g}, in shares; change them"
            )
        return self

    @property
    def mean_s(self) -> float:
        """Mean of a call, in seconds."""
        return sum(seconds * share for seconds, share in zip(self.seconds, self.shares, strict=True))


def delay_of(config: DelaysConfig, task: str, member: int, turn: int, call: int = 0) -> float:
    """Seconds that a call takes.

    Args:
        config: lengths and how often each is drawn.
        task: its id.
        member: index in the group.
        turn: of the episode, from 0.
        call: of the turn, from 0.
    """
    drawn = _chance("delay", config.seed, task, member, turn, call)
    bounds = accumulate(config.shares)
    return next((s for s, bound in zip(config.seconds, bounds, strict=True) if drawn < bound), config.seconds[-1])


def fails_at_once(share: float, seed: int, task: str, member: int) -> bool:
    """Whether the first try of an episode fails.

    Args:
        share: of all episodes.
        seed: of the draws.
        task: its id.
        member: index in the group.
    """
    return _chance("fails", seed, task, member) < share


class MixedTool:
    """A tool that takes its time: another one, after the delay that is drawn for the call.

    Args:
        tool: answers.
        config: of the delays.
        task: id of the task that the episode is about.
    """

    def __init__(self, tool: Tool, config: DelaysConfig, task: str) -> None:
        self.name, self.description, self.parameters = tool.name, tool.description, tool.parameters
        self.needs = needs_of(tool)
        self._tool, self._config, self._task = tool, config, task

    async def call(self, arguments: Mapping[str, Any], key: tuple[int, ...]) -> ToolAnswer:
        """See ``Tool.call``. A retry waits as long as the first try would have."""
        _, _, member, _, turn, call = key
        await anyio.sleep(delay_of(self._config, self._task, member, turn, call))
        return await self._tool.call(arguments, key)


class FailedAtOnce(RuntimeError):
    """The episode was drawn to fail."""


class FailingEnv:
    """An environment of which a share of the episodes fails when it opens, each once.

    Args:
        env: what stands behind it.
        share: of all episodes.
        seed: of the draws.
    """

    def __init__(self, env: Environment, share: float, seed: int) -> None:
        self._env, self._share, self._seed = env, share, seed

    async def reset(self, task: Task, key: tuple[int, int, int, int]) -> Opening:
        """See ``Environment.reset``.

        Raises:
            FailedAtOnce: it was drawn, and is tried for the first time.
        """
        _, _, member, retry = key
        if retry == 0 and fails_at_once(self._share, self._seed, task.id, member):
            raise FailedAtOnce("drawn to fail")
        return await self._env.reset(task, key)

    async def step(self, message: Message) -> Reply:
        """See ``Environment.step``."""
        return await self._env.step(message)

    async def score(self) -> dict[str, float] | None:
        """See ``Environment.score``."""
        return await self._env.score()

    async def close(self) -> None:
        """See ``Environment.close``."""
        await self._env.close()


def mean_calls(config: DelaysConfig, tasks: Sequence[Task], group_size: int) -> float:
    """Mean seconds of the first calls of these tasks' episodes, as they are drawn."""
    drawn = [delay_of(config, task.id, member, 0) for task in tasks for member in range(group_size)]
    return sum(drawn) / len(drawn)


def _chance(*what: object) -> float:
    word = int.from_bytes(hashlib.blake2b(repr(what).encode(), digest_size=8).digest(), "big")
    return (word >> 11) / 2**53
