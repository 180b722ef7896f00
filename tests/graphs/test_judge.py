"""A judge in a graph with a real engine: beside it, and on it."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest
from flax import nnx

from flow import Context, Graph, Run
from flow.trace import PerfettoWriter, read_trace, recording
from stages.agents.model_agent import ModelAgent
from stages.agents.sampling import SamplingConfig
from stages.envs.task_env import TaskEnv
from stages.episodes import Episodes
from stages.models.config import ModelConfig
from stages.models.transformer import Transformer
from stages.policy import Sample, SampleRequest
from stages.records import Episode, Group, Message, Task
from stages.rewards.functions import ContextReward
from stages.rewards.judge import Judge, JudgeConfig
from stages.rewards.stage import Rewards
from stages.rollout.config import EngineConfig
from stages.rollout.engine import Engine
from stages.scripted import ScriptedPolicy
from stages.text.compact import CompactChat

CHAT = CompactChat()
MODEL = ModelConfig(
    vocab_size=CHAT.vocab_size,
    width=16,
    num_layers=1,
    num_heads=2,
    num_kv_heads=1,
    head_size=8,
    mlp_width=32,
    context_length=64,
)
ENGINE = EngineConfig(slots=4, context_length=64, prefill_rows=2, prefill_chunk=16)
SLOW, STEPS = 3, 15
"""Groups that are judged slowly, and steps of the engine for which each is kept waiting."""

pytestmark = pytest.mark.slow  # An engine compiles.


class SlowJudge(ScriptedPolicy):
    """Answers questions about the first groups only after so many steps of the engine: for ever, if those waited for it."""

    def __init__(self, engine: Engine):
        super().__init__(CHAT, ["verdict: 1"])
        self._engine = engine

    async def sample(self, request: SampleRequest) -> Sample:
        begun, slow = self._engine.statistics().steps, int(CHAT.read(request.ids[2:-1]).content) < SLOW
        while slow and self._engine.statistics().steps <= begun + STEPS:  # noqa: ASYNC110 - the engine's thread tells nobody
            await anyio.sleep(0.001)
        return await super().sample(request)


def graph_of(engine: Engine, judge: Judge, pools: Mapping[str, int], num_tasks: int, groups: list[Group]) -> Graph:
    """Two members for each task, played by the engine and judged."""

    def note(group: Group, context: Context) -> None:
        groups.append(group)

    graph = Graph("judged", pools=pools)
    tasks = graph.source("tasks", [Task(f"t{n}", "say a lot") for n in range(num_tasks)])
    members = graph.repeat("members", tasks, n=2)
    play = Episodes(engine, CHAT, ModelAgent(), lambda task: TaskEnv(), SamplingConfig(max_tokens_per_turn=48, max_turns=1))
    episodes = graph.stage("episodes", play, workers=4)
    rewards = graph.stage("rewards", Rewards({"judge": (ContextReward(judge), 1.0)}))
    tasks >> members >> episodes >> graph.group("groups", episodes) >> rewards >> graph.sink("noted", note)
    return graph


def ask_for_the_group(episode: Episode) -> list[Message]:
    return [Message("user", str(episode.birth))]


def test_the_engine_decodes_while_a_judge_is_waited_for(tmp_path: Path):
    """The trace shows each question as a slice, and the steps of the engine that began inside of it."""
    groups, engine = list[Group](), Engine(Transformer(MODEL, nnx.Rngs(0)), ENGINE)
    judge = Judge(SlowJudge(engine), CHAT, JudgeConfig(deadline_s=30), asks=ask_for_the_group, pool="judge")
    graph = graph_of(engine, judge, {"judge": 2}, 12, groups)

    async def run() -> None:
        with PerfettoWriter(tmp_path / "run.pftrace") as recorder, recording(recorder):
            async with engine:
                await Run(graph.build(), recorder=recorder).finish()

    asyncio.run(run())
    assert [episode.reward for group in groups for episode in group.episodes] == [1.0] * 24
    slices = read_trace(tmp_path / "run.pftrace").slices
    decodes = [each for each in slices if each.name == "decode" and "steps" in each.args]
    judged = [each for each in slices if each.name == "judge" and each.end_ns is not None]
    assert len(judged) == 12, "one question for each group, whose members ask the same"
    inside = sorted(
        sum(steps.args["steps"] for steps in decodes if each.start_ns < steps.end_ns and steps.start_ns < each.end_ns)
        for each in judged
    )
    assert inside[-SLOW] >= STEPS, "groups are judged as they complete, so the slow ones may come in any order"


def test_the_engine_that_plays_may_judge_too():
    """Its answers are noise here: whatever one says counts, where it ends by itself, and no other member is harmed."""
    groups = list[Group]()
    engine = Engine(Transformer(MODEL, nnx.Rngs(0)), ENGINE)
    settings = JudgeConfig(max_tokens=40, temperature=1.0)
    judge = Judge(engine, CHAT, settings, asks=ask_for_the_group, reads=lambda said: 0.5, pool="engine")

    async def run() -> None:
        async with engine:
            await Run(graph_of(engine, judge, {"engine": ENGINE.turns}, 12, groups).build()).finish()

    asyncio.run(run())
    rewards = [episode.reward for group in groups for episode in group.episodes]
    assert 0.5 in rewards
    problems = {episode.error for group in groups for episode in group.episodes if episode.reward != 0.5}
    assert problems <= {
        "reward 'judge': NoVerdictError: expected an answer that ends by itself, got one that was cut after 40 tokens"
    }
