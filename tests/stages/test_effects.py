"""The name under which an episode acts outside: the same when it is executed again, another for whatever is to differ.

Attempts are at least once, so whoever acts outside needs a name to act by once. The environments here count who executed them.
"""

import asyncio
import random
from collections import defaultdict
from pathlib import Path

import pytest

from flow import Collect, Context, Gathered, Graph, Retry, Run, testing
from flow.saving import Commits, Saving
from flow.testing import run_virtual
from flow.testing._threads import PlayedExecutor
from stages.agents.agent import Agent
from stages.agents.model_agent import ModelAgent
from stages.agents.sampling import SamplingConfig
from stages.agents.tool_agent import ToolAgent
from stages.arrays import ARRAYS
from stages.envs.custom import CustomEnv, over
from stages.envs.housed import on_loop
from stages.envs.pool import EnvPool
from stages.envs.tool_env import ToolEnv
from stages.episodes import Episodes
from stages.records import Episode, Message, Task, ToolCall
from stages.scripted import ScriptedPolicy
from stages.tasks.source import Tasks
from stages.text.chat import Chat
from stages.text.compact import CompactChat
from stages.tools.context import key_of, tool_context, tool_context_with
from stages.tools.function import FunctionTool
from stages.tools.run import tools_of_run

TASKS = [Task(f"t{number}", "go") for number in range(5)]
SAMPLING = SamplingConfig(max_tokens_per_turn=16, max_turns=3)


class Outside:
    """Takes note of who acts: by name, (task, member, retry) and the numbers of executions."""

    def __init__(self) -> None:
        self.acted: dict[str, list[int]] = defaultdict(list)
        self.whose: dict[str, tuple[str, int, int, int]] = {}

    def act(self, task: Task, key: tuple[int, int, int, int]) -> None:
        context = tool_context()
        whose = (task.id, *key[1:])
        assert self.whose.setdefault(context.key, whose) == whose, "one name, one episode"
        self.acted[context.key].append(context.attempt)

    def numbers(self) -> dict[tuple[str, int, int, int], list[int]]:
        return {self.whose[key]: attempts for key, attempts in self.acted.items()}


class Acting(CustomEnv):
    """Acts in ``reset``; every third member fails the first time."""

    def __init__(self, outside: Outside, clock: random.Random) -> None:
        self.outside, self.clock = outside, clock

    async def reset(self, task, key):
        self.outside.act(task, key)
        await asyncio.sleep(self.clock.choice([0, 0.5, 2]))
        _, birth, member, retry = key
        if (birth + member) % 3 == 0 and retry == 0:
            raise OSError("out of luck")
        return task.prompt

    async def step(self, message):
        return over("done")

    async def score(self):
        return 1.0


class Counted:
    """A sink that takes steps."""

    def add(self, group: Gathered[Episode], context: Context) -> None:
        """Nothing to learn."""

    def finish(self, context: Context) -> int:
        return 0

    def state(self) -> int:
        return 0

    def restore(self, state: int) -> None: ...


def graph_of(outside: Outside, clock: random.Random) -> Graph:
    chat = CompactChat([])
    episodes = Episodes(ScriptedPolicy(chat, ["x"]), chat, ModelAgent(), on_loop(lambda task: Acting(outside, clock)), SAMPLING)
    graph = Graph("rl")
    prompts = graph.source("prompts", Tasks(TASKS, 0))
    members = graph.repeat("members", prompts, n=2)
    played = graph.stage("episodes", episodes, workers=4)
    groups = graph.group("groups", played, missing=Retry(1, then="drop"))
    sink = graph.sink("trainer", Counted(), collect=Collect(2, steps=6))
    _ = prompts >> members >> played >> groups >> sink
    return graph


def test_an_episode_that_is_executed_again_acts_under_the_same_name_with_another_number():
    """Workers are killed, so attempts are repeated: each (task, birth, member, retry) has one name, each attempt a number."""
    outside = Outside()
    with tool_context_with(run="mine/rl"):
        run_virtual(Run(graph_of(outside, random.Random(0)).build()).finish(), seed=3, kill=0.1)
    numbers = outside.numbers()
    assert len(numbers) == len(outside.acted), "one episode, one name"
    assert {retry for *_, retry in numbers} == {0, 1}
    assert any(len(attempts) > 1 for attempts in numbers.values()), "some were repeated"
    assert all(len(set(attempts)) == len(attempts) for attempts in numbers.values()), "no number twice"
    assert all(key.startswith("mine/rl/episodes/") for key in outside.acted)


def test_names_stay_what_they_were_after_a_resume(tmp_path: Path):
    """P2: what was under way comes again under its name; an unbroken run has the same names."""
    whole, cut, clock = Outside(), Outside(), random.Random(1)
    run_virtual(Run(graph_of(whole, clock).build()).finish())

    async def piece(stop_after_s: float | None) -> str:
        with Commits(tmp_path, hooks=ARRAYS) as commits:
            run = Run(graph_of(cut, clock).build(), saving=Saving(commits, resume=commits.latest()))
            run.threads = PlayedExecutor
            if stop_after_s is not None:
                asyncio.get_running_loop().call_later(stop_after_s, run.suspend)
            return str((await run.finish()).status)

    assert run_virtual(piece(3.2)) == "suspended"
    before = {key: list(attempts) for key, attempts in cut.acted.items()}
    assert run_virtual(piece(None)) == "completed"
    again = [key for key, attempts in before.items() if len(cut.acted[key]) > len(attempts)]
    assert again, "some were under way"
    assert all(cut.acted[key][-1] > before[key][-1] for key in again)
    both = whole.acted.keys() & cut.acted.keys()
    assert len(both) > 20
    assert all(cut.whose[key] == whole.whose[key] for key in both)


async def names_in(make_env, chat: Chat, agent: Agent, says: list[str | Message], task: Task) -> Episode:
    graph, made = Graph("rl"), []
    episodes = Episodes(ScriptedPolicy(chat, says), chat, agent, make_env, SAMPLING)
    prompts, played = graph.source("prompts", [task]), graph.stage("episodes", episodes)
    _ = prompts >> played >> graph.sink("made", lambda episode, context: made.append(episode))
    await Run(graph.build(quiet=True)).finish()
    return made[0]


class Telling(CustomEnv):
    """Says its name, from the thread that its plain methods run in."""

    def reset(self, task, key):
        self.first = tool_context().key
        return task.prompt

    def step(self, message):
        assert tool_context().key == self.first
        return over(self.first)

    def score(self):
        return 1.0


@pytest.mark.parametrize("pooled", [False, True])
def test_an_environment_in_a_thread_and_one_that_is_used_again_know_the_name(tmp_path: Path, pooled: bool):
    """As the run has it: its name, its graph, the node, the path of the item and its retry."""
    make_env = EnvPool(lambda task: Telling(), size=1) if pooled else lambda task: Telling()

    async def main() -> None:
        with tools_of_run(tmp_path / "mine", "rl"):
            for _ in range(2):
                chat = CompactChat([])
                episode = await names_in(make_env, chat, ModelAgent(), ["x"], TASKS[0])
                assert episode.messages[-1].content == "mine/rl/episodes/0/0"

    (tmp_path / "mine").mkdir()
    asyncio.run(main())


def test_each_call_of_a_tool_has_a_name_of_its_own():
    """That of its episode, with the turn and the place of the call in it."""
    told: list[str] = []

    async def act(what: str) -> str:
        """Acts outside.

        Args:
            what: whatever.
        """
        told.append(f"{what} {tool_context().key}")
        return "1"

    tool = FunctionTool(act)
    chat = CompactChat([tool])

    def calls(*said: str) -> Message:
        return Message("assistant", "", tuple(ToolCall(f"c{at}", "act", {"what": what}) for at, what in enumerate(said)))

    async def main() -> None:
        env = ToolEnv([tool])
        with tool_context_with(key="mine/rl/episodes/0/0"):
            await env.reset(TASKS[0], (0, 0, 0, 0))
            await env.step(calls("1", "2"))
            await env.step(calls("1", "2"))
            assert tool_context().key == "mine/rl/episodes/0/0"
        told.sort(key=lambda line: line.split()[1])
        await names_in(on_loop(lambda task: ToolEnv([tool])), chat, ToolAgent(), [calls("3"), "4"], TASKS[0])

    asyncio.run(main())
    assert told[:4] == [f"{1 + call} mine/rl/episodes/0/0/{turn}.{call}" for turn in range(2) for call in range(2)]
    assert told[4:] == ["3 episodes/0/0/0.0"]


def test_a_name_is_made_of_the_run_and_what_the_attempt_is_of():
    """Not of the number of the attempt, nor of the weights."""
    first, again = (testing.context(node="episodes", attempt=attempt) for attempt in (0, 1))
    assert key_of(first, "mine/rl") == key_of(again, "mine/rl") == "mine/rl/episodes/0/0"
    assert key_of(first, "") == "episodes/0/0"
