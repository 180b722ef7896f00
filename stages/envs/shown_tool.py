"""What is shown of a tool whose calls only its environment executes. For agents, chats and pools; not a tool to call."""

from collections.abc import Mapping
from typing import Any

import msgspec

from stages.tools.tool import ToolAnswer, failure


class ShownTool(msgspec.Struct, frozen=True):
    """Name, description, schema and needs of a tool, as they were when the environment opened."""

    name: str
    description: str
    parameters: dict[str, Any]
    needs: dict[str, int] = {}

    async def call(self, arguments: Mapping[str, Any], key: tuple[int, ...]) -> ToolAnswer:
        """Nothing: the environment executes it."""
        return failure("only its environment executes it")
