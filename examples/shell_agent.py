"""The same task, answered in one turn or worked out at a shell: one line differs, and nothing about training does.

The policy follows a script. The commands run as children of this program, in a folder of the episode's own, under a limit: that
bounds time and output, and isolates nothing else. Give commands that a model wrote to a sandbox.
"""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from flow import Context, Graph, Run
from stages.agents.model_agent import ModelAgent
from stages.agents.sampling import SamplingConfig
from stages.envs.custom import CustomEnv, over
from stages.envs.environment import Reply
from stages.envs.housed import MakeEnv
from stages.envs.task_env import TaskEnv
from stages.episodes import Episodes
from stages.records import Group, Message, Task
from stages.rewards.answers import exact_answer
from stages.rewards.stage import Rewards
from stages.scripted import ScriptedPolicy
from stages.text.compact import CompactChat

TASKS = [Task(f"t{n}", f"how many lines has log{n}?", answer=str(n * n + 3)) for n in range(1, 9)]


class Shell(CustomEnv):
    """Text that begins with ``run`` is a command; any other is the answer. Blocking calls are fine: it has a thread."""

    def reset(self, task: Task, key: tuple[int, int, int, int]) -> str:
        self.folder = Path(tempfile.mkdtemp())
        number = int(task.id[1:])
        (self.folder / f"log{number}").write_text("line\n" * (number * number + 3))
        return task.prompt

    def step(self, message: Message) -> str | Reply:
        if not message.content.startswith("run "):
            return over()
        command = subprocess.Popen(
            message.content[4:], shell=True, cwd=self.folder, text=True, start_new_session=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            return command.communicate(timeout=10)[0][:200].strip() or "no output"
        except subprocess.TimeoutExpired:
            return "no answer in 10 s"
        finally:
            if command.poll() is None:
                os.killpg(command.pid, signal.SIGKILL)
            command.communicate()

    def close(self) -> None:
        shutil.rmtree(getattr(self, "folder", ""), ignore_errors=True)


def looks_first(talk: str, turn: int) -> str:
    """The policy: it looks, and says what it saw."""
    seen = re.search(r"<\|user\|>(\d+)<\|assistant\|>$", talk)
    return seen.group(1) if seen else f"run wc -l < {re.search(r'log[0-9]', talk).group()}"


async def mean_reward(make_env: MakeEnv) -> float:
    """Play all tasks; what comes before and after ``Episodes`` is as in training."""
    chat, rewards = CompactChat(), list[float]()

    def count(group: Group, context: Context) -> None:
        rewards.extend(episode.reward or 0.0 for episode in group.episodes)

    graph = Graph("tasks")
    play = Episodes(ScriptedPolicy(chat, looks_first), chat, ModelAgent(), make_env, SamplingConfig(max_turns=4))
    tasks = graph.source("tasks", TASKS)
    members = graph.repeat("members", tasks, n=2)
    episodes = graph.stage("episodes", play, workers=8)
    groups = graph.group("groups", episodes)
    scored = graph.stage("rewards", Rewards({"answer": (exact_answer, 1.0)}))
    counted = graph.sink("counted", count)
    tasks >> members >> episodes >> groups >> scored >> counted
    await Run(graph.build()).finish()
    return sum(rewards) / len(rewards)


def one_turn(task: Task) -> TaskEnv:
    return TaskEnv()


def at_a_shell(task: Task) -> Shell:
    return Shell()


if __name__ == "__main__":
    guessed = asyncio.run(mean_reward(make_env=one_turn))
    looked = asyncio.run(mean_reward(make_env=at_a_shell))
    print(f"solved {guessed:.3f} in one turn, {looked:.3f} at a shell")
