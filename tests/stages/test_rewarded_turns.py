"""What an environment gives for a turn, all the way to the advantage of the tokens of that turn."""

import asyncio

from flow import Failed, Gathered
from flow.testing import context
from stages.advantages.stage import Advantages, AdvantagesConfig
from stages.agents.model_agent import ModelAgent
from stages.agents.sampling import SamplingConfig
from stages.envs.custom import CustomEnv, earned, over
from stages.episodes import Episodes
from stages.records import Episode, Group, Task
from stages.rewards.functions import TurnReward
from stages.rewards.stage import Rewards
from stages.scripted import ScriptedPolicy
from stages.text.compact import CompactChat

CHAT = CompactChat()


class Countdown(CustomEnv):
    """Gives what is said as the reward of the turn; over at 0."""

    def reset(self, task, key):
        return "numbers please"

    def step(self, message):
        said = float(message.content)
        return earned(said, "more") if said else over("enough", reward=said)


async def played(*says: str) -> Episode:
    stage = Episodes(ScriptedPolicy(CHAT, says), CHAT, ModelAgent(), lambda task: Countdown(), SamplingConfig(max_turns=4))
    out = await stage(Task("t", "?"), context())
    assert not isinstance(out, Failed)
    return out


def test_a_turn_is_credited_with_what_it_and_later_turns_earned():
    """Discount 1/2. Turns of 4, 2 and 0 return 5, 2 and 0, a single turn of 0 returns 0. With a vote each the mean is 7/6."""

    async def run() -> Group:
        episodes = (await played("4", "2", "0"), await played("0"))
        assert [[turn.reward for turn in episode.turns] for episode in episodes] == [[4.0, 2.0, 0.0], [0.0]]
        group = await Rewards({"turns": (TurnReward(), 1.0)})(Gathered(0, episodes, (), "full"), context())
        assert [episode.reward for episode in group.episodes] == [6.0, 0.0]
        out = Advantages(AdvantagesConfig(rule="turns", discount=0.5, scale=False))(group, context())
        assert isinstance(out, Group)
        return out

    group = asyncio.run(run())
    of_turns = [
        [round(float(advantages[turn.start]), 5) for turn in episode.turns]
        for episode, advantages in zip(group.episodes, group.advantages or (), strict=True)
    ]
    assert of_turns == [[round(g - 7 / 6, 5) for g in (5, 2, 0)], [round(-7 / 6, 5)]]
