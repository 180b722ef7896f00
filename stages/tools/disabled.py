"""A tool that is there and never works: the control that shows how much of a score is earned through the tool."""

from collections.abc import Mapping
from typing import Any

from stages.tools.tool import Tool, ToolAnswer, failure


class DisabledTool:
    """Looks like another tool and answers every call with an error."""

    def __init__(self, tool: Tool):
        """Take over name, description and schema."""
        self.name = tool.name
        self.description = tool.description
        self.parameters = tool.parameters

    async def call(self, arguments: Mapping[str, Any], key: tuple[int, ...]) -> ToolAnswer:
        """See ``Tool.call``."""
        return failure("not available")
