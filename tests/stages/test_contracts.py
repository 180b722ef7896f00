"""Stages of the library against the contract of a stage, which ``flow.testing.check_stage`` spells out."""

import asyncio
from typing import get_type_hints

import numpy as np
import pytest
from hypothesis import strategies as st

from flow import Gathered
from flow.testing import check_stage
from stages.advantages.stage import Advantages, AdvantagesConfig
from stages.batches.stage import Pack, PackConfig
from stages.losses.tokens import Needs
from stages.records import Episode, Group, Message, Status, Task
from stages.rewards.answers import exact_answer
from stages.rewards.functions import ContextReward
from stages.rewards.judge import Judge
from stages.rewards.shuffled import Shuffled
from stages.rewards.stage import Rewards
from stages.scripted import ScriptedPolicy
from stages.tasks.example_sets import ExampleSets
from stages.tasks.source import Tasks
from stages.text.compact import CompactChat


@st.composite
def episodes(draw: st.DrawFn, *, scored: bool) -> list[Episode]:
    """Members of a group, some of them failed, in member order."""
    return [
        Episode(
            task=Task("t", "6 * 2?", "12"),
            birth=0,
            member=member,
            retry=0,
            ids=np.arange(4, dtype=np.int32),
            mask=np.array([False, True, sampled, sampled]),
            logprobs=np.array([np.nan, -1, -1, -1], np.float32),
            versions=np.array([-1, 0, 0, 0], np.int32),
            turns=(),
            messages=(Message("assistant", draw(st.sampled_from(["12", "13", ""]))),),
            status=status,
            reward=draw(st.sampled_from([0.0, 0.5, 1.0])) if scored and not status.failed else None,
        )
        for member, (status, sampled) in enumerate(
            draw(st.lists(st.tuples(st.sampled_from(list(Status)), st.booleans()), min_size=1, max_size=3))
        )
    ]


def gathered() -> st.SearchStrategy[Gathered[Episode]]:
    return episodes(scored=False).map(lambda members: Gathered(0, tuple(members), (), "full"))


def groups() -> st.SearchStrategy[Group]:
    return episodes(scored=True).map(lambda members: Group(0, tuple(members)))


async def slowly(episode: Episode) -> float:
    await asyncio.sleep(1)
    return exact_answer(episode)


@pytest.mark.slow
def test_rewards_keep_their_contract():
    check_stage(Rewards({"answer": (exact_answer, 1.0)}), gathered(), examples=15)
    check_stage(lambda: Rewards({"slow": (slowly, 1.0), "answer": (exact_answer, 0.5)}), gathered(), examples=15)


@pytest.mark.slow
def test_a_judge_keeps_the_contract_of_rewards():
    """Members that say the same wait for one answer: cancelled anywhere, nobody is left waiting."""

    class Far(ScriptedPolicy):
        async def sample(self, request):
            await asyncio.sleep(1)
            return await super().sample(request)

    def judged() -> Rewards:
        chat = CompactChat()
        said = lambda episode: [Message("user", episode.messages[-1].content if episode.messages else "")]  # noqa: E731
        return Rewards({"judge": (ContextReward(Judge(Far(chat, ["verdict: 1"]), chat, asks=said)), 1.0)})

    check_stage(judged, gathered(), examples=15)


@pytest.mark.slow
def test_shuffled_rewards_keep_their_contract():
    check_stage(Shuffled(Rewards({"slow": (slowly, 1.0)}), seed=3), gathered(), examples=15)


@pytest.mark.slow
def test_advantages_keep_their_contract():
    check_stage(Advantages(), groups(), examples=15)
    check_stage(Advantages(AdvantagesConfig(filter_no_signal=True)), groups(), examples=15)
    check_stage(Advantages(AdvantagesConfig(rule="turns", overlong="mask")), groups(), examples=5)


def test_packing_keeps_its_contract():
    def with_advantages(group: Group) -> Group:
        return Group(
            0,
            group.episodes,
            tuple(np.ones(len(e.ids), np.float32) for e in group.episodes),
            live=(True,) * len(group.episodes),
        )

    check_stage(Pack(PackConfig(row_length=8), Needs()), groups().map(with_advantages), examples=15)


def test_sources_go_on_where_they_were_restored():
    """As a stage that draws whenever it is asked: what it gives depends on how often, so its order is kept."""

    def draws(make):
        place = get_type_hints(make().state)["return"]

        class Draws:
            def __init__(self) -> None:
                self.source, self.at, self.drawn = make(), None, None
                self.before = self.source.state()

            def __call__(self, value: None, context) -> object:
                if context.path != self.at:
                    self.at, self.before, self.drawn = context.path, self.source.state(), self.source.draw()
                return self.drawn

            def state(self) -> tuple[place, tuple[int, ...] | None]:
                return self.before, self.at

            def restore(self, state) -> None:
                self.before, self.at = state
                self.source.restore(self.before)
                self.drawn = None if self.at is None else self.source.draw()

        return Draws

    tasks = [Task(str(number), "?") for number in range(3)]
    check_stage(draws(lambda: Tasks(tasks, seed=1)), [None] * 7, keep_order=True)
    check_stage(draws(lambda: ExampleSets(tasks, 2, seed=1)), [None] * 7, keep_order=True)
