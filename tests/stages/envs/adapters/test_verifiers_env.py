"""Against the real package, which is an optional one."""

import asyncio
import importlib
import sys
from pathlib import Path

import psutil
import pytest

from stages.envs.adapters.verifiers_env import VerifiersEnv, VerifiersError, verifiers_tasks
from stages.records import BadCall, Message, Status, ToolCall

pytest.importorskip("verifiers.v1")
pytestmark = [
    pytest.mark.extra,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:The 'initial' parameter:DeprecationWarning"),  # of verifiers, about tenacity
]

KEY = (1, 2, 3, 0)
MODULE = "verifiers_sums"


@pytest.fixture
def sums(monkeypatch):
    folder = str(Path(__file__).parent / "servers")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", folder)
    yield importlib.import_module(MODULE)
    sys.modules.pop(MODULE)


@pytest.fixture
def play(hold):
    return lambda taskset, *turns, at=0, **knobs: hold(
        VerifiersEnv(list(taskset), **knobs), verifiers_tasks(taskset)[at], turns, KEY
    )


def add(*pairs):
    return Message("assistant", "", tuple(ToolCall(f"c{i}", "adder_add", {"a": a, "b": b}) for i, (a, b) in enumerate(pairs)))


def tool_server_runs():
    try:
        return any(MODULE in child.cmdline() for child in psutil.Process().children(recursive=True))
    except (psutil.NoSuchProcess, psutil.ZombieProcess):  # one that ended while it was looked at
        return False


def test_a_task_is_asked_answered_and_scored_by_its_own_rewards_and_metrics(sums, play):
    opening, (reply,), score = play(sums.sums(sums.SumTask), "it is 42", at=1)
    assert opening.messages == (Message("system", "Be brief."), Message("user", "40+2?"))
    assert opening.tools == ()
    assert (reply.messages, reply.end) == ((), Status.FINISHED)
    assert score == {"correct": 2.0, "turns": 1.0, "reward": 2.0}
    assert play(sums.sums(sums.SumTask), "it is 7")[2]["reward"] == 0.0


def test_tasks_have_names_of_their_own_and_a_limit(sums):
    tasks = verifiers_tasks(sums.sums(sums.SumTask))
    assert [task.prompt for task in tasks] == ["2+3?", "40+2?"]
    assert len({task.id for task in tasks}) == 2
    assert verifiers_tasks(sums.sums(sums.SumTask), limit=1) == tasks[:1]


def test_calls_are_executed_by_the_rollout_and_answered_each_under_its_own_id(sums, play):
    """S49, S50."""
    unknown = Message("assistant", "", (*add((2, 3), (20, 30)).calls, ToolCall("c2", "sub", {})))
    opening, replies, score = play(sums.sums(sums.ToolTask), unknown, "5")
    assert [(tool.name, tool.description) for tool in opening.tools] == [("adder_add", "Add two numbers.")]
    assert opening.tools[0].parameters["required"] == ["a", "b"]
    assert [(message.role, message.call_id, message.content) for message in replies[0].messages] == [
        ("tool", "c0", "5"),
        ("tool", "c1", "50"),
        ("tool", "c2", "error: expected one of adder_add, got sub"),
    ]
    assert (replies[1].end, score["reward"], score["turns"]) == (Status.FINISHED, 2.0, 2.0)
    assert psutil.Process().children(recursive=True) == []


def test_a_rollout_that_is_closed_while_its_tools_start_leaves_no_process(sums):
    """S28, S29."""

    async def run():
        env = VerifiersEnv(list(sums.sums(sums.ToolTask)))
        resetting = asyncio.create_task(env.reset(verifiers_tasks(sums.sums(sums.ToolTask))[0], KEY))
        async with asyncio.timeout(60):
            while not tool_server_runs():  # noqa: ASYNC110 - nobody tells when another process starts
                await asyncio.sleep(0.01)
        resetting.cancel()
        await asyncio.wait([resetting])
        await env.close()

    asyncio.run(run())
    assert psutil.Process().children(recursive=True) == []


def test_a_call_that_cannot_be_read_is_answered_and_nothing_of_its_turn_is_executed(sums, play):
    """S44, S48, S53."""
    bad = Message("assistant", "", (*add((2, 3)).calls, BadCall("c9", "the call was cut off")))
    _, replies, score = play(sums.sums(sums.ToolTask), bad, add((2, 3)), bad, bad, max_invalid=2)
    assert [(message.call_id, message.content) for message in replies[0].messages] == [
        ("c0", "error: not executed, since another call of the turn could not be read"),
        ("c9", "error: the call was cut off"),
    ]
    assert replies[1].messages[0].content == "5"
    assert (replies[3].end, replies[3].reason) == (
        Status.TRUNCATED_TURNS,
        "2 turns in a row with a call that cannot be read",
    )
    assert score["turns"] == 2.0  # the one that was executed, and the empty one that ended the rollout


def test_a_stop_condition_of_the_task_finishes_and_a_limit_truncates(sums, play):
    calling = Message("assistant", "stop", add((1, 1)).calls)
    _, stopped, _ = play(sums.sums(sums.ToolTask), calling)
    assert (stopped[-1].end, len(stopped)) == (Status.FINISHED, 1)
    _, cut, score = play(sums.sums(sums.ToolTask), add((2, 3)), max_turns=1)
    assert (cut[-1].end, cut[-1].reason) == (Status.TRUNCATED_TURNS, "stopped by verifiers: max_turns")
    assert score["reward"] == 0.0


def test_an_episode_that_was_cut_short_is_scored_as_far_as_it_came(sums, play):
    assert play(sums.sums(sums.SumTask))[2] == {"correct": 0.0, "turns": 1.0, "reward": 0.0}


@pytest.mark.parametrize(("kind", "problem"), [("BrokenTask", "the disk is full"), ("BadlyScoredTask", "the judge is down")])
def test_a_failure_of_the_task_is_raised_and_is_no_reward_of_zero(sums, kind, problem, play):
    with pytest.raises(VerifiersError, match=rf"expected a rollout that asks and is scored; got .*{problem}"):
        play(sums.sums(getattr(sums, kind)), "5")
