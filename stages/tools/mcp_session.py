"""One connection to an MCP server, through the official ``mcp`` package, which is imported when a connection is opened.

A task of its own opens and closes it, since the package's connections must be left by the task that entered them, and an
episode may end in another one than it began in. A server that is started for it ends with it, with all it has started, also
where this process is killed.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anyio

import flow
from stages.tools.credentials import Credentials
from stages.tools.sandbox import LAUNCHER
from stages.tools.tool import BrokenToolError

CONNECTION_CLOSED = -32000
"""Code by which the package says that there is nobody at the other end."""
_MAX_PAGES = 100


def _nothing() -> Mapping[str, str]:
    return {}


@dataclass(frozen=True)
class StdioServer:
    """A server that is a program, spoken to over its standard input and output. What it writes to standard error is dropped.

    Attributes:
        command: the program and its arguments.
        environment: gives its variables when a connection is opened, besides a few of ours such as PATH; ask ``Credentials``
            for secrets here.
        folder: where it runs; ``None`` for where we do.
    """

    command: Sequence[str]
    environment: Callable[[], Mapping[str, str]] = _nothing
    folder: str | os.PathLike[str] | None = None

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncGenerator[Any]:
        """Start it; the streams to it."""
        from mcp.client.stdio import StdioServerParameters, stdio_client

        settings = json.dumps({"parent": os.getpid(), "isolate": False, "command": list(self.command)})
        parameters = StdioServerParameters(
            command=sys.executable,
            args=["-I", "-S", str(LAUNCHER), settings],
            env=dict(self.environment()),
            cwd=self.folder,
        )
        with open(os.devnull, "w") as nowhere:  # noqa: ASYNC230 - it never blocks
            async with stdio_client(parameters, errlog=nowhere) as streams:
                yield streams


@dataclass(frozen=True)
class HttpServer:
    """A server somewhere, spoken to over streamable HTTP.

    Attributes:
        url: of its endpoint, without secrets.
        headers: gives headers of every request when a connection is opened; ask ``Credentials`` for secrets here.
    """

    url: str
    headers: Callable[[], Mapping[str, str]] = _nothing

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncGenerator[Any]:
        """Connect to it; the streams to it."""
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        # Reading may take as long as a tool does: that is the tool's deadline to bound.
        patience = httpx2.Timeout(30.0, read=None)
        async with (
            httpx2.AsyncClient(headers=dict(self.headers()), timeout=patience) as client,
            streamable_http_client(self.url, http_client=client) as streams,
        ):
            yield streams


class McpSession:
    """One connection. It begins to open when it is made, and is to be stopped.

    Attributes:
        users: how many episodes use it.
    """

    def __init__(self, server: StdioServer | HttpServer, credentials: Credentials) -> None:
        self.users = 0
        self._server, self._credentials = server, credentials
        self._client: Any = None
        self._listed: Sequence[Any] = ()
        self._error: BaseException | None = None
        self._settled = asyncio.Event()
        self._scope = anyio.CancelScope()
        self._task = asyncio.create_task(self._own(), name="MCP session")

    @property
    def over(self) -> bool:
        """Whether it cannot be used any more."""
        return self._task.done()

    async def tools(self, limit_s: float) -> Sequence[Any]:
        """The server's own description of its tools, once the connection is open.

        Raises:
            BrokenToolError: it cannot be opened, or not in time.
            RevokedError: a credential was revoked.
        """
        self.check_credentials()  # by each episode, whose errors are blanked of what it has used, also where another one opens
        try:
            with flow.span("network", kind="MCP"):
                async with asyncio.timeout(limit_s):
                    await self._settled.wait()
        except TimeoutError:
            self._scope.cancel()
            raise BrokenToolError(f"the MCP server did not answer within {limit_s:g} s") from None
        if self._client is None:
            raise self._gone()
        return self._listed

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Call a tool; the server's result.

        Raises:
            BrokenToolError: there is nobody at the other end.
            ValueError: the server refused the call.
        """
        from mcp import MCPError

        if self.over:
            raise self._gone()
        try:
            with flow.span("network", kind="MCP"):
                return await self._client.call_tool(name, dict(arguments))
        except MCPError as error:
            if error.code == CONNECTION_CLOSED or self.over:
                self.check_credentials()  # the connection of a revoked one is closed at once
                raise self._gone() from error
            raise ValueError(error.message) from error

    def check_credentials(self) -> None:
        """Ask for each credential, as a use of it.

        Raises:
            RevokedError: one of them was revoked.
        """
        for name in self._credentials.names:
            self._credentials.get(name)

    async def stop(self) -> None:
        """Close the connection, and wait until it is."""
        self._scope.cancel()
        await asyncio.wait([self._task])

    async def _own(self) -> None:
        try:
            with self._scope:
                async with contextlib.AsyncExitStack() as stack:
                    await self._open(stack)
                    self._settled.set()
                    await anyio.sleep_forever()
        except Exception as error:
            self._error = error
        finally:
            self._settled.set()

    async def _open(self, stack: contextlib.AsyncExitStack) -> None:
        from mcp import Client

        for name in self._credentials.names:
            await stack.enter_async_context(self._credentials.held(name))
        client = await stack.enter_async_context(Client(self._server.connect()))
        page = await client.list_tools()
        listed = list(page.tools)
        for _ in range(_MAX_PAGES):
            if page.next_cursor is None:
                break
            page = await client.list_tools(cursor=page.next_cursor)
            listed += page.tools
        self._client, self._listed = client, listed

    def _gone(self) -> BrokenToolError:
        error = self._error
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, BrokenToolError):
            return error
        why = "" if error is None else f": {type(error).__name__}: {error}"
        return BrokenToolError(f"the MCP server is gone{why}")
