"""Any tool, answering late: an asynchronous delay from a heavy-tailed distribution, the same in every run.

For demonstrations and tests of concurrency. The delay is a pure function of the call's key, never of a clock or a shared
generator, so that the order in which episodes run cannot change it.
"""

import hashlib
import math
from collections.abc import Mapping
from typing import Any

import anyio
import pydantic

from stages.tools.tool import Tool, ToolAnswer, needs_of


class DelayConfig(pydantic.BaseModel):
    """How long a delayed tool waits before it starts."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    scale_s: float = pydantic.Field(default=0.05, ge=0)
    """Shortest delay, in seconds (the scale of a Pareto distribution). 0 waits not at all."""
    shape: float = pydantic.Field(default=1.5, gt=0)
    """Weight of the tail, without a unit: smaller is heavier. At 1.5 the mean is 3 times ``scale_s`` and there is no variance.
    ``inf`` waits exactly ``scale_s`` each time."""
    max_s: float = pydantic.Field(default=2.0, ge=0)
    """Longest delay, in seconds: a longer draw is cut to it."""


def delay_s(config: DelayConfig, key: tuple[int, ...]) -> float:
    """Seconds to wait for the call with this key: a draw of Pareto(scale, shape), cut at ``max_s``. Pure.

    Args:
        config: the distribution.
        key: any integers; the same key gives the same delay on every machine.
    """
    word = int.from_bytes(hashlib.blake2b(repr(tuple(map(int, key))).encode(), digest_size=8).digest(), "big")
    uniform = ((word >> 11) + 1) / 2**53  # in (0, 1], so that the power below is finite
    return min(config.max_s, config.scale_s * math.exp(-math.log(uniform) / config.shape))


class DelayedTool:
    """A tool that waits before it answers."""

    def __init__(self, tool: Tool, config: DelayConfig):
        """Wrap a tool; name, description, schema and needs are its own."""
        self.name = tool.name
        self.description = tool.description
        self.parameters = tool.parameters
        self.needs = needs_of(tool)
        self._tool = tool
        self._config = config

    async def call(self, arguments: Mapping[str, Any], key: tuple[int, ...]) -> ToolAnswer:
        """See ``Tool.call``."""
        await anyio.sleep(delay_s(self._config, key))
        return await self._tool.call(arguments, key)
