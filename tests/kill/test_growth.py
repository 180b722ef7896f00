"""Nothing that grows with the length of a run stays in memory or in a commit."""

import gc
import hashlib
import os
import statistics
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flow import Collect, Context, Freshness, Graph, Retry, Run
from flow.saving import Commits, Journal, Saving
from flow.testing import run_virtual
from graphs.runs.folder import RunFolder
from stages.advantages.stage import Advantages
from stages.agents.sampling import SamplingConfig
from stages.agents.tool_agent import ToolAgent
from stages.arrays import ARRAYS
from stages.batches.stage import Pack, PackConfig
from stages.envs.tool_env import ToolEnv
from stages.episodes import Episodes
from stages.losses.tokens import Needs
from stages.records import Batch, Episode, Task
from stages.rewards.stage import Rewards
from stages.scripted import ScriptedPolicy
from stages.tasks.arithmetic import ArithmeticConfig, arithmetic_tasks
from stages.tasks.source import Tasks
from stages.text.compact import CompactChat
from stages.tools.calculator import calculator_tool

STEPS, WARM = 2_000, 500
TOOL = calculator_tool()


class Counted(msgspec.Struct, frozen=True):
    """What the trainer that trains nothing has seen."""

    steps: int


class Trainer:
    """Trains nothing, and looks at what the run holds while it goes on."""

    def __init__(self, commits: Path, journal: Path) -> None:
        self.objects: list[int] = []
        self.moments: list[int] = []
        self.resident: list[int] = []
        self.journal: list[int] = []
        self._steps, self._commits, self._journal = 0, commits, journal

    def add(self, batch: Batch, context: Context) -> None: ...

    def finish(self, context: Context) -> int:
        self._steps += 1
        context.report(
            {"step": self._steps, "skipped": None, "updates": 1, **{f"figure_{i}": self._steps / (i + 1) for i in range(50)}}
        )
        if self._steps % 100 == 0 and self._steps >= WARM:
            gc.collect()
            self.objects.append(len(gc.get_objects()))
            self.resident.append(int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
            self.journal.append(sum(path.stat().st_size for path in self._journal.iterdir()))
            self.moments.append(max(path.stat().st_size for path in self._commits.glob("*/moment")))
        return self._steps

    def state(self) -> Counted:
        return Counted(self._steps)

    def restore(self, state: Counted) -> None:
        self._steps = state.steps


def reward(episode: Episode) -> float:
    """One that differs between the members of a group, and is the same for all of some groups."""
    return hashlib.blake2b(f"{episode.birth % 7} {episode.member if episode.birth % 5 else 0}".encode()).digest()[0] / 255


def make_env(task: Task) -> ToolEnv:
    return ToolEnv([TOOL])


def graph_of(trainer: Trainer) -> Graph:
    chat = CompactChat([TOOL])
    policy = ScriptedPolicy(chat, lambda talk, turn: "7" if turn else "8")
    graph = Graph("long")
    cell = graph.latest("weights", int)
    tasks = graph.source("tasks", Tasks(arithmetic_tasks(ArithmeticConfig(), 0, 64, "train"), 0))
    members = graph.repeat("members", tasks, n=4)
    episodes = graph.stage(
        "episodes", Episodes(policy, chat, ToolAgent(), make_env, SamplingConfig()), workers=8, reads=cell
    )  # fmt: skip
    groups = graph.group("groups", episodes, missing=Retry(1, then="drop"))
    rewards = graph.stage("rewards", Rewards({"hashed": (reward, 1.0)}))
    batches = graph.stage("batches", Pack(PackConfig(row_length=64), Needs()))
    sink = graph.sink("trainer", trainer, collect=Collect(2, steps=STEPS))
    _ = tasks >> members >> episodes >> groups >> rewards >> graph.stage("advantages", Advantages()) >> batches >> sink
    graph.edge(episodes, groups, durable=True)
    graph.feedback(sink, cell, initial=0, freshness=Freshness(max_lag=1))
    return graph


def grown(figures: list[int]) -> float:
    """How much larger the later half is than the earlier one, in the mean: each depends on what is in flight just then."""
    half = len(figures) // 2
    return statistics.mean(figures[half:]) - statistics.mean(figures[:half])


@pytest.mark.soak
def test_memory_commits_and_journal_level_off_over_thousands_of_steps(tmp_path: Path):
    """S25: tiny episodes by a script through every stage but the model's, each step logged, each tenth one committed."""
    folder, commits, noted = RunFolder(tmp_path / "run"), tmp_path / "run" / "checkpoints", tmp_path / "run" / "journal"
    trainer = Trainer(commits, noted)

    async def main() -> Any:
        with folder, Commits(commits, every=10, hooks=ARRAYS) as saved, Journal(noted) as journal:
            saved.on_thread = False
            saving = Saving(saved, beside={"outcomes": folder.outcomes}, journal=journal)
            run = Run(graph_of(trainer).build(), watchers=(folder,), tally=folder.outcomes, saving=saving)
            folder.begin("rl")
            return await run.finish()

    summary = run_virtual(main(), seed=0)
    assert summary.balanced
    print(f"objects {trainer.objects[0]:,} to {trainer.objects[-1]:,} from step {WARM} to step {STEPS}")
    print(f"resident {trainer.resident[0] / 1e6:.0f} to {trainer.resident[-1] / 1e6:.0f} MB")
    print(f"moment {min(trainer.moments):,} to {max(trainer.moments):,} bytes")
    print(f"journal {min(trainer.journal):,} to {max(trainer.journal):,} bytes")
    assert grown(trainer.journal) < 10_000
    assert grown(trainer.objects) < 1_000
    assert grown(trainer.resident) < 4e6
    assert grown(trainer.moments) < 1_000
    assert len(list(commits.glob("[0-9]*"))) == 2
