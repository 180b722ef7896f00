"""Times of an episode: those that are saved are those that were spent, and those that the trace shows."""

import itertools
import json
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from flow import Graph, Run
from flow.testing import Collected, run_virtual
from flow.trace import PerfettoWriter, Slice, read_trace
from graphs.runs.folder import RunFolder
from stages.agents.sampling import SamplingConfig
from stages.agents.tool_agent import ToolAgent
from stages.envs.tool_env import ToolEnv
from stages.episodes import Episodes
from stages.policy import Sample, SampleRequest
from stages.records import Message, Task, ToolCall
from stages.rewards.answers import exact_answer
from stages.rewards.stage import Rewards
from stages.scripted import ScriptedPolicy
from stages.text.compact import CompactChat
from stages.tools.function import FunctionTool


async def calculator(expression: str) -> str:
    """Answer late."""
    await anyio.sleep(0.02)
    return "6"


TOOL = FunctionTool(calculator, name="calculator")
CHAT = CompactChat([TOOL])
CALL = Message("assistant", "", (ToolCall("0", "calculator", {"expression": "2*3"}),))


class SlowPolicy(ScriptedPolicy):
    """Takes 50 ms for each turn, and tells of the first one where they went."""

    async def sample(self, request: SampleRequest) -> Sample:
        await anyio.sleep(0.05)
        sample = await super().sample(request)
        told = {} if request.key[-1] else {"queue_s": 0.01, "prefill_s": 0.015, "decode_s": 0.02}
        return msgspec.structs.replace(sample, **told)


class SlowEnv(ToolEnv):
    """Takes 30 ms to begin and 5 ms to end."""

    async def reset(self, task: Task, key: tuple[int, int, int, int]) -> Any:
        await anyio.sleep(0.03)
        return await super().reset(task, key)

    async def close(self) -> None:
        await anyio.sleep(0.005)
        await super().close()


async def make_env(task: Task) -> SlowEnv:
    return SlowEnv([TOOL])


def played(folder: Path, pool: str | None = None, workers: int = 1, tasks: int = 1) -> tuple[list[Any], list[Slice]]:
    """Rows of ``episodes.jsonl`` and slices of the trace of some episodes of two turns, in virtual time."""
    stage = Episodes(
        SlowPolicy(CHAT, [CALL, "6"]), CHAT, ToolAgent(), make_env,
        SamplingConfig(max_tokens_per_turn=16, max_turns=4), pool=pool,
    )  # fmt: skip
    graph = Graph("played", pools={} if pool is None else {pool: 1})
    source = graph.source("tasks", [Task(f"t{number}", "2*3", "6") for number in range(tasks)])
    members = graph.repeat("members", source, n=1)
    episodes = graph.stage("episodes", stage, workers=workers)
    rewards = graph.stage("rewards", Rewards({"answer": (exact_answer, 1.0)}))
    source >> members >> episodes >> graph.group("groups", episodes) >> rewards >> graph.sink("scored", Collected())
    with RunFolder(folder) as run_folder, PerfettoWriter(folder / "run.pftrace") as recorder:
        run_folder.begin("phase")
        run_virtual(Run(graph.build(), watchers=(run_folder,), recorder=recorder).finish())
    rows = [json.loads(line) for line in (folder / "episodes.jsonl").read_text().splitlines()]
    return rows, list(read_trace(folder / "run.pftrace").slices)


def seconds(slices: list[Slice], name: str) -> list[float]:
    return [(each.end_ns - each.start_ns) / 1e9 for each in slices if each.name == name]


def test_a_model_call_of_50_ms_and_a_tool_of_20_ms_are_saved_with_those_lengths(tmp_path: Path) -> None:
    """S104. What nobody measured is null and not 0: the second turn is the answer, and the policy told nothing of it."""
    (row,), slices = played(tmp_path / "run")
    first, second = row["turns"]
    near = pytest.approx
    assert (first["model_s"], first["tool_s"], second["model_s"]) == (near(0.05), near(0.02), near(0.05))
    assert (first["queue_s"], first["prefill_s"], first["decode_s"]) == (near(0.01), near(0.015), near(0.02))
    assert (second["queue_s"], second["prefill_s"], second["decode_s"]) == (None, None, None)
    assert row["timings"] == {"setup_s": near(0.0), "reset_s": near(0.03), "score_s": near(0.0), "close_s": near(0.005)}
    assert row["seconds"] == near(0.05 + 0.02 + 0.05 + 0.03 + 0.005)
    assert seconds(slices, "model") == [near(first["model_s"]), near(second["model_s"])]
    for name in ("queue", "prefill", "decode"):
        assert seconds(slices, name) == [near(first[f"{name}_s"])]
    for name in ("setup", "reset", "score", "close"):
        assert seconds(slices, name) == [near(row["timings"][f"{name}_s"])]
    assert seconds(slices, "calculator") == [near(0.02)]


def test_what_a_policy_tells_of_a_turn_lies_inside_its_slice_in_order(tmp_path: Path) -> None:
    _, slices = played(tmp_path / "run")
    model, *told = [each for each in slices if each.name in ("model", "queue", "prefill", "decode")][:4]
    assert [each.name for each in told] == ["queue", "prefill", "decode"]
    assert {each.depth for each in told} == {model.depth + 1}
    assert model.start_ns == told[0].start_ns
    assert told[-1].end_ns <= model.end_ns
    assert all(before.end_ns == after.start_ns for before, after in itertools.pairwise(told))


def test_the_wait_for_a_permit_is_part_of_the_queue(tmp_path: Path) -> None:
    """Two episodes and one unit: the second begins its first turn when that of the first is over."""
    rows, slices = played(tmp_path / "run", pool="engine", workers=2, tasks=2)
    waits = sorted(turn["queue_s"] for row in rows for turn in row["turns"])
    assert waits[-1] == pytest.approx(0.05 + 0.01)
    assert max(seconds(slices, "wait for pool")) == pytest.approx(0.05)
