"""Pools and rates that tools name: declared by the graph's settings, refused before anything runs where they are not."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from flow import Graph, Run, StageFailed
from graphs.calculator import calculator
from graphs.cli import main
from graphs.evaluate import evaluate
from graphs.parts import Parts
from graphs.rl import rl
from stages.agents.sampling import SamplingConfig
from stages.agents.tool_agent import ToolAgent
from stages.envs.housed import on_loop
from stages.envs.tool_env import ToolEnv
from stages.episodes import Episodes
from stages.records import Message, Task, ToolCall
from stages.scores import Scores
from stages.scripted import ScriptedPolicy
from stages.text.compact import CompactChat
from stages.tools.delay import DelayConfig, DelayedTool
from stages.tools.function import FunctionTool
from stages.tools.methods import MethodTools


async def look(place: str) -> str:
    """Look somewhere."""
    return "here"


class Shelf:
    async def fetch(self, book: str) -> str:
        """Fetch a book."""
        return "here"


LOOK = FunctionTool(look, pool="sandbox", rate="search")
TOOLS = (DelayedTool(LOOK, DelayConfig()), *MethodTools(Shelf, pool="shelf").specs)


@pytest.fixture(scope="module")
def parts(config: Callable[..., Any]) -> Parts:
    parts = calculator(config()).parts
    assert parts is not None
    return replace(parts, tools=TOOLS)


def test_what_tools_name_and_a_graph_lacks_is_refused_all_at_once(config: Any, parts: Parts) -> None:
    """Through a tool that wraps another, and through methods of which there is no object yet."""
    settings = config().rl.model_copy(update={"pools": {"shelves": 2}, "rates": {"search": 4.0}})
    with pytest.raises(
        ValueError,
        match=r"got search, shelves: look needs sandbox; fetch needs shelf; in rl\.pools and rl\.rates; declare there",
    ):
        rl(settings, parts)
    with pytest.raises(ValueError, match=r"got none: look needs sandbox; look needs search; fetch .* in heldout\.pools"):
        evaluate(config().evaluate, parts, Scores(1), "heldout")


def test_what_is_declared_is_in_the_graph(config: Any, parts: Parts) -> None:
    """And in its drawing, which is of the graph itself."""
    declared = {"pools": {"sandbox": 3, "shelf": 1}, "rates": {"search": 4.0}}
    for graph in (
        rl(config().rl.model_copy(update=declared), parts),
        evaluate(config().evaluate.model_copy(update=declared), parts, Scores(1)),
    ):
        drawn = graph.draw()
        assert all(text in drawn for text in ("sandbox 3", "shelf 1", "engine 20", "search 4"))


def test_a_pool_of_the_engine_is_not_declared_again(config: Any, parts: Parts) -> None:
    settings = config().rl.model_copy(update={"pools": {"sandbox": 3, "shelf": 1, "engine": 9}, "rates": {"search": 4.0}})
    with pytest.raises(ValueError, match=r"got engine, sandbox, search, shelf: engine is the engine's; in rl\.pools"):
        rl(settings, parts)


@pytest.mark.slow
def test_pools_and_rates_are_settings_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    main(["draw", "calculator", "--rl.pools", "sandbox", "8", "--rl.rates", "search", "2.5"])
    assert "sandbox 8" in capsys.readouterr().out


def test_a_pool_that_nobody_knew_of_ends_the_run_and_fails_no_episode() -> None:
    """Where an environment has tools that the program does not know of: a mistake of the program, not of the environment."""
    call = Message("assistant", "", (ToolCall("0", "look", {"place": "there"}),))
    chat = CompactChat([LOOK])
    play = Episodes(
        ScriptedPolicy(chat, [call, "done"]), chat, ToolAgent(), on_loop(lambda task: ToolEnv([LOOK])), SamplingConfig()
    )
    graph = Graph("tools")
    (
        graph.source("tasks", [Task("t", "where?")])
        >> graph.stage("play", play)
        >> graph.sink("seen", lambda episode, context: None)
    )
    with pytest.raises(StageFailed) as failed:
        asyncio.run(Run(graph.build(quiet=True)).finish())
    assert "asks for 1 of pool 'sandbox', which does not exist" in str(failed.value.__cause__)
