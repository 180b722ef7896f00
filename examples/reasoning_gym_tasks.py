"""Tasks of reasoning-gym, scored by their own data set: needs ``pip install 'headrace[reasoning-gym]'``.

The policy is a script that only adds: it is right where a sum has no minus. A trained one takes its place in ``Episodes``.
"""

import asyncio
import re
from importlib.util import find_spec

import msgspec
import numpy as np

from flow import Context, Gathered, Graph, Run
from stages.agents.model_agent import ModelAgent
from stages.agents.sampling import SamplingConfig
from stages.envs.adapters.reasoning_gym_env import ReasoningGymEnv
from stages.episodes import Episodes
from stages.policy import Sample, SampleRequest
from stages.records import Episode, Message, Task
from stages.tasks.reasoning_gym import reasoning_gym_tasks
from stages.text.compact import CompactChat


class Adder:
    """A policy without a model: adds up every number it reads."""

    context_length = 512

    def __init__(self, chat: CompactChat) -> None:
        self._chat = chat

    async def sample(self, request: SampleRequest) -> Sample:
        total = sum(int(number) for number in re.findall(r"\d+", self._chat.decode(request.ids)))
        ids = self._chat.write(Message("assistant", str(total)))
        return Sample(ids, np.zeros(len(ids), np.float32), np.zeros(len(ids), np.int32), "stop")

    def release(self, session: str) -> None:
        """Nothing is kept."""

    def abort(self, session: str) -> None:
        """Nothing takes long."""


async def main() -> None:
    chat = CompactChat()
    # The compact format has few characters: a real tokenizer takes the questions as they are.
    tasks: list[Task] = [
        msgspec.structs.replace(task, prompt=chat.vocabulary.nearest(task.prompt))
        for task in reasoning_gym_tasks("chain_sum", 40, seed=0, config={"min_terms": 2, "max_terms": 3})
    ]
    rewards: dict[bool, list[float]] = {False: [], True: []}

    def count(group: Gathered[Episode], context: Context) -> None:
        for episode in group.members:
            rewards[" - " in episode.task.prompt].append(episode.parts["reward"])

    graph = Graph("sums")
    source = graph.source("tasks", tasks)
    once = graph.repeat("once", source, n=1)
    play = Episodes(Adder(chat), chat, ModelAgent(), lambda task: ReasoningGymEnv(), SamplingConfig())
    episodes = graph.stage("episodes", play, workers=4)
    groups = graph.group("groups", episodes)
    counted = graph.sink("counted", count)
    source >> once >> episodes >> groups >> counted
    await Run(graph.build()).finish()
    right = [sum(reward == 1 for reward in rewards[minus]) for minus in (False, True)]
    print(f"{right[0]} of {len(rewards[False])} sums right, {right[1]} of {len(rewards[True])} with a minus")


if __name__ == "__main__":
    if find_spec("reasoning_gym") is None:
        print("skipped: it needs pip install 'headrace[reasoning-gym]'")
    else:
        asyncio.run(main())
