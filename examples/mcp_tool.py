"""A tool of an MCP server, used in episodes: needs ``pip install 'headrace[mcp]'``.

Every episode starts a server of its own over stdio, which ends with it; here it is a few lines of Python, and it may be any
program. The policy is a script: it asks for the stock of a part, and says what it read. A trained one takes its
place in ``Episodes``.
"""

import asyncio
import re
import sys
from importlib.util import find_spec

from flow import Context, Graph, Run
from stages.agents.sampling import SamplingConfig
from stages.agents.tool_agent import ToolAgent
from stages.envs.housed import on_loop
from stages.envs.tool_env import ToolEnv
from stages.episodes import Episodes
from stages.records import Group, Message, Task, ToolCall
from stages.rewards.answers import exact_answer
from stages.rewards.stage import Rewards
from stages.scripted import ScriptedPolicy
from stages.text.compact import CompactChat
from stages.tools.mcp import McpTools
from stages.tools.mcp_session import StdioServer

SERVER = """
from mcp.server.mcpserver import MCPServer

STOCK = {"bolt": 412, "nut": 977, "washer": 1503}
server = MCPServer("store", log_level="CRITICAL")


@server.tool()
def stock(part: str) -> int:
    'How many of a part are in stock.'
    return STOCK[part]


server.run("stdio")
"""
TASKS = [Task(part, f"how many of {part}?", answer=answer) for part, answer in (("bolt", "412"), ("nut", "977"))]


class Stock:
    """What a conversation is shown of the tool; the server tells the same when it is asked."""

    name = "stock"
    description = "How many of a part are in stock."
    parameters = {"type": "object", "properties": {"part": {"type": "string"}}, "required": ["part"]}  # noqa: RUF012


def asks_first(talk: str, turn: int) -> Message:
    """The policy: it asks, and says what it read."""
    if turn == 0:
        (part,) = re.findall(r"of (\w+)\?", talk)
        return Message("assistant", "", (ToolCall("0", "stock", {"part": part}),))
    return Message("assistant", re.findall(r"\d+", talk)[-1])


async def main() -> None:
    server = StdioServer([sys.executable, "-c", SERVER])
    chat, right = CompactChat([Stock()]), list[float]()

    def count(group: Group, context: Context) -> None:
        right.extend(episode.reward or 0.0 for episode in group.episodes)

    graph = Graph("store")
    make_env = on_loop(lambda task: ToolEnv([McpTools(server, deadline_s=10)]))
    play = Episodes(ScriptedPolicy(chat, asks_first), chat, ToolAgent(), make_env, SamplingConfig(max_turns=2))
    tasks = graph.source("tasks", TASKS)
    once = graph.repeat("once", tasks, n=1)
    episodes = graph.stage("episodes", play, workers=2)
    groups = graph.group("groups", episodes)
    rewards = graph.stage("rewards", Rewards({"answer": (exact_answer, 1.0)}))
    counted = graph.sink("counted", count)
    tasks >> once >> episodes >> groups >> rewards >> counted
    await Run(graph.build()).finish()
    print(f"{sum(right):g} of {len(right)} answers right, each read from a server")


if __name__ == "__main__":
    if find_spec("mcp") is None:
        print("skipped: it needs pip install 'headrace[mcp]'")
    else:
        asyncio.run(main())
