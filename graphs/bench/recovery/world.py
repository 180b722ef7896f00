"""The world of the training that is interrupted, apart from all that is heavy: its environment runs in processes of its own."""

import random
from collections.abc import Mapping
from typing import Any

import anyio

from stages.envs.tool_env import ToolEnv
from stages.records import Task
from stages.tools.calculator import calculator_tool
from stages.tools.tool import Tool, ToolAnswer, needs_of

MOST_S = 0.5
"""Most seconds that the tool takes."""


class LateTool:
    """A tool that answers after a time that no seed decides, so that no two runs see the same order.

    Args:
        tool: answers.
        most_s: most seconds before it does; an eighth of that is common.
    """

    def __init__(self, tool: Tool, most_s: float) -> None:
        self.name, self.description, self.parameters, self.needs = tool.name, tool.description, tool.parameters, needs_of(tool)
        self._tool, self._most_s, self._clock = tool, most_s, random.SystemRandom()

    async def call(self, arguments: Mapping[str, Any], key: tuple[int, ...]) -> ToolAnswer:
        """See ``Tool.call``."""
        await anyio.sleep(self._clock.random() ** 3 * self._most_s)
        return await self._tool.call(arguments, key)


def late_env(task: Task) -> ToolEnv:
    """An environment with a calculator that is late; importable, so that a process can make it."""
    return ToolEnv([LateTool(calculator_tool(), MOST_S)])
