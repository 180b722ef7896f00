"""A real MCP server for the tests: ``mcp_server.py stdio`` or ``mcp_server.py http PORT``."""

import os
import signal
import subprocess
import sys
import time

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("tests", log_level="CRITICAL")
CALLS = []


@server.tool()
def add(a: int, b: int = 1) -> int:
    """Add two integers."""
    return a + b


@server.tool()
def count() -> str:
    """Count the calls of this server."""
    CALLS.append(1)
    return f"{len(CALLS)} in {os.getpid()}"


@server.tool()
def refuse() -> str:
    """Refuse."""
    raise ToolError("no such page")


@server.tool()
def wait(seconds: float) -> str:
    """Wait."""
    time.sleep(seconds)
    return "waited"


@server.tool()
def key() -> str:
    """Tell the key."""
    return f"key {os.environ.get('SEARCH_KEY')}, our own {os.environ.get('HEADRACE_TEST_KEY')}"


@server.tool()
def child() -> str:
    """Start a process that would live on."""
    return str(subprocess.Popen(["sleep", "600"], start_new_session=True).pid)


@server.tool()
def die() -> str:
    """Die."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", port=int(sys.argv[2]))
