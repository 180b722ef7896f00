"""A curriculum: sums of one, two and three digits, drawn by how often they succeed; and what became of the tasks of each.

The learner is no model: its skill at a length grows with each group of it that is trained. A real policy and a real trainer
take its place in ``Episodes`` and in the sink.
"""

import argparse
import asyncio
from functools import partial

import numpy as np

from flow import Collect, Context, Freshness, Graph, Items, Run
from stages.advantages.stage import Advantages, AdvantagesConfig
from stages.agents.model_agent import ModelAgent
from stages.agents.sampling import SamplingConfig
from stages.batches.stage import Pack, PackConfig
from stages.envs.task_env import TaskEnv
from stages.episodes import Episodes
from stages.losses.tokens import Needs
from stages.outcomes import Outcomes
from stages.policy import Sample, SampleRequest
from stages.records import Batch, Message
from stages.rewards.answers import exact_answer
from stages.rewards.stage import Rewards
from stages.tasks.arithmetic import ArithmeticConfig, arithmetic_task
from stages.tasks.curriculum import Curriculum, CurriculumConfig
from stages.tasks.generated import Generated
from stages.tasks.observed import Observed
from stages.text.compact import CompactChat

LEVELS = ("1 digit", "2 digits", "3 digits")


class Learner:
    """Answers right by chance, and more often the more it was trained; a policy and a collecting sink in one."""

    context_length = 256

    def __init__(self, chat: CompactChat) -> None:
        self._chat = chat
        self.skill = [0.4, 0.1, 0.02]
        self.step: list[Batch] = []

    async def sample(self, request: SampleRequest) -> Sample:
        left, right = self._chat.decode(request.ids).split("<|user|>")[-1].split("<")[0].split("+")
        able = np.random.PCG64(list(request.key)).random_raw() / 2**64 < self.skill[len(left) - 1]
        ids = self._chat.write(Message("assistant", str(int(left) + int(right) + (not able))))
        return Sample(ids, np.zeros(len(ids), np.float32), np.zeros(len(ids), np.int32), "stop")

    def release(self, session: str) -> None: ...
    def abort(self, session: str) -> None: ...

    def add(self, batch: Batch, context: Context) -> None:
        self.step.append(batch)

    def finish(self, context: Context) -> int:
        for batch in self.step:
            level = LEVELS.index(str(batch.episodes[0].difficulty))
            for harder in range(level, len(LEVELS)):
                self.skill[harder] = min(0.97, self.skill[harder] + 0.015 / 3 ** (harder - level))
        self.step.clear()
        return 0


async def train(steps: int) -> Outcomes:
    chat, outcomes = CompactChat(), Outcomes()
    learner = Learner(chat)
    configs = [ArithmeticConfig(operators="+", digits=(digits, digits)) for digits in (1, 2, 3)]
    sums = [Generated(partial(arithmetic_task, config, split="train"), seed=0) for config in configs]
    curriculum = Curriculum(dict(zip(LEVELS, sums, strict=True)), CurriculumConfig(min_share=0.1, window=16, ahead=4))

    async def load(value: int, version: int) -> None:
        if version % 10 == 0:
            shares = ", ".join(f"{level} {share:.2f}" for level, share in curriculum.shares.items())
            print(f"after {version:2} steps: {shares}")

    graph = Graph("curriculum")
    weights = graph.latest("weights", int, load=curriculum.counted_before(load))
    prompts = graph.source("prompts", curriculum)
    members = graph.repeat("members", prompts, n=8)
    play = Episodes(learner, chat, ModelAgent(), lambda task: TaskEnv(), SamplingConfig())
    episodes = graph.stage("episodes", play, workers=16, reads=weights)
    groups = graph.group("groups", episodes)
    rewards = graph.stage("rewards", Rewards({"answer": (exact_answer, 1.0)}))
    observed = graph.stage("observed", Observed(curriculum))
    advantages = graph.stage("advantages", Advantages(AdvantagesConfig(filter_no_signal=True)), budget=None)
    batches = graph.stage("batches", Pack(PackConfig(row_length=64), Needs()))
    trainer = graph.sink("trainer", learner, collect=Collect(4, steps=steps))
    graph.edge(prompts, members, capacity=Items(4))
    members >> episodes >> groups >> rewards >> observed >> advantages >> batches >> trainer
    graph.feedback(trainer, weights, initial=0, freshness=Freshness(max_lag=0))
    await Run(graph.build(), tally=outcomes).finish()
    return outcomes


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    outcomes = asyncio.run(train(parser.parse_args().steps))
    told = outcomes.report()["arithmetic"]
    for level, of_level in sorted(told["difficulties"].items()):
        print(f"{level}: drawn {of_level['drawn']}, {of_level['ends']}")
    print(f"{told['trained']} groups trained, each draw with one end: {told['drawn'] == sum(told['ends'].values())}")
