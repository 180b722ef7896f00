"""The tools of any MCP server, as the server describes them: ``McpTools(StdioServer(["python", "server.py"]))``.

Needs the extra ``mcp``. What a tool says is wrong is an answer; a server that is gone says nothing about the policy and ends
the episode as ``tool_error``. ``mcp_session.py`` is the connection.

Source: the Model Context Protocol, through its Python package. We differ: arguments are checked against the tool's schema
before they are sent, so that a misfit is told from a failure of the tool.
"""

import json
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Any

from stages.cancellation import to_the_end
from stages.tools.credentials import Credentials
from stages.tools.limits import ToolLimits, cut_to_limits, limited
from stages.tools.mcp_session import HttpServer, McpSession, StdioServer
from stages.tools.tool import Tool, ToolAnswer


class McpTools:
    """A toolset of what a server offers."""

    def __init__(
        self,
        server: StdioServer | HttpServer,
        *,
        only: Collection[str] | None = None,
        shared: bool = False,
        credentials: Credentials | None = None,
        connect_s: float = 30.0,
        **limits: Any,
    ):
        """Configure; connects to nothing.

        Args:
            server: where the tools are.
            only: names of the tools to show; ``None`` for all.
            shared: one connection for all episodes at once, closed when the last of them ends, for a server that keeps nothing
                of one. Otherwise each episode has its own.
            credentials: what the server is handed. When one of them is revoked, the connection is closed at once.
            connect_s: most seconds until the server has told its tools.
            limits: fields of ``ToolLimits``, for each tool.

        Raises:
            ImportError: the package is not installed.
        """
        if find_spec("mcp") is None:
            raise ImportError("expected the package mcp, for McpTools; got none; install it with pip install 'headrace[mcp]'")
        self._server = server
        self._only = only
        self._is_shared = shared
        self._credentials = credentials or Credentials({})
        self._connect_s = connect_s
        self._limits = ToolLimits(**limits)
        self._shared: McpSession | None = None

    @asynccontextmanager
    async def open(self, key: tuple[int, int, int, int]) -> AsyncGenerator[Sequence[Tool]]:
        """See ``Toolset.open``.

        Raises:
            BrokenToolError: the server cannot be reached, or lacks a tool that is to be shown.
        """
        session = self._session()
        session.users += 1
        try:
            yield self._shown(session, await session.tools(self._connect_s))
        finally:
            session.users -= 1
            if session.users == 0:
                self._shared = None if self._shared is session else self._shared
                await to_the_end(session.stop())

    def _session(self) -> McpSession:
        if not self._is_shared:
            return McpSession(self._server, self._credentials)
        if self._shared is None or self._shared.over:
            self._shared = McpSession(self._server, self._credentials)
        return self._shared

    def _shown(self, session: McpSession, listed: Sequence[Any]) -> tuple[Tool, ...]:
        absent = sorted(set(self._only or ()) - {tool.name for tool in listed})
        if absent:
            raise LookupError(
                f"expected tools among {', '.join(tool.name for tool in listed)}; got {', '.join(absent)}, in McpTools(only); "
                "correct the names"
            )
        wanted = [tool for tool in listed if self._only is None or tool.name in self._only]
        return tuple(_McpTool(session, tool, self._limits) for tool in wanted)


class _McpTool:
    """One tool of a server, in one episode."""

    def __init__(self, session: McpSession, listed: Any, limits: ToolLimits):
        from jsonschema import Draft202012Validator

        self.name: str = listed.name
        self.description: str = listed.description or ""
        self.parameters: dict[str, Any] = listed.input_schema
        self._session = session
        self.needs = limits.needs
        self._limits = limits
        self._schema = Draft202012Validator(self.parameters)

    async def call(self, arguments: Mapping[str, Any], key: tuple[int, ...]) -> ToolAnswer:
        """See ``Tool.call``."""
        faults = [f"{error.json_path}: {error.message}" for error in self._schema.iter_errors(dict(arguments))]
        if faults:
            return ToolAnswer(cut_to_limits(f"error: {'; '.join(faults)}", self._limits), "invalid")
        self._session.check_credentials()
        return await limited(lambda: self._answer(arguments), self._limits)

    async def _answer(self, arguments: Mapping[str, Any]) -> ToolAnswer:
        result = await self._session.call(self.name, arguments)
        text = "\n".join(map(_text, result.content))
        if not text and result.structured_content is not None:
            text = json.dumps(result.structured_content, ensure_ascii=False)
        return ToolAnswer(f"error: {text}", "failed") if result.is_error else ToolAnswer(text)


def _text(block: Any) -> str:
    """A part of a result as text; what is none is named."""
    match block.type:
        case "text":
            return block.text
        case "resource" if getattr(block.resource, "text", None) is not None:
            return block.resource.text
        case "resource" | "resource_link":
            return f"[resource {getattr(block, 'uri', None) or block.resource.uri}]"
        case kind:
            return f"[{kind} {block.mime_type}]"
