"""An environment of your own: a guessing game over several turns, played by a policy that follows a script.

``Environment`` has four methods. The policy is anything that implements ``stages.policy.Policy``: here, a binary search.
"""

import asyncio
import re

import numpy as np

from flow import Context, Gathered, Graph, Run
from stages.agents.sampling import SamplingConfig
from stages.agents.tool_agent import ToolAgent
from stages.envs.environment import Opening, Reply
from stages.episodes import Episodes
from stages.policy import Sample, SampleRequest
from stages.records import Episode, Message, Status, Task
from stages.text.compact import CompactChat


class GuessTheNumber:
    """Say a number from 1 to 100; the answer is higher, lower, or the end."""

    async def reset(self, task: Task, key: tuple[int, int, int, int]) -> Opening:
        self.secret, self.turns = int(task.answer or 0), 0
        return Opening((Message("user", task.prompt),))

    async def step(self, message: Message) -> Reply:
        self.turns += 1
        guess = int(message.content)
        if guess == self.secret:
            return Reply(end=Status.FINISHED)
        return Reply((Message("user", "higher" if guess < self.secret else "lower"),))

    async def score(self) -> dict[str, float]:
        return {"turns": float(self.turns)}

    async def close(self) -> None:
        """Nothing to free."""


class BinarySearch:
    """A policy without a model: reads the conversation so far and halves the interval."""

    context_length = 512

    def __init__(self, chat: CompactChat) -> None:
        self._chat = chat

    async def sample(self, request: SampleRequest) -> Sample:
        low, high = 1, 100
        for guess, answer in re.findall(r"(\d+)<\|end\|><\|user\|>(higher|lower)", self._chat.decode(request.ids)):
            low, high = (int(guess) + 1, high) if answer == "higher" else (low, int(guess) - 1)
        ids = self._chat.write(Message("assistant", str((low + high) // 2)))
        return Sample(ids, np.zeros(len(ids), np.float32), np.zeros(len(ids), np.int32), "stop")

    def release(self, session: str) -> None:
        """Nothing is kept."""

    def abort(self, session: str) -> None:
        """Nothing takes long."""


async def main() -> None:
    chat = CompactChat()
    sampling = SamplingConfig(max_tokens_per_turn=8, max_turns=8)
    turns: list[float] = []

    def count(group: Gathered[Episode], context: Context) -> None:
        turns.append(group.members[0].parts["turns"])

    graph = Graph("guessing")
    tasks = graph.source("tasks", [Task(str(n), "guess a number", answer=str(n)) for n in range(1, 101)])
    once = graph.repeat("once", tasks, n=1)
    play = Episodes(BinarySearch(chat), chat, ToolAgent(), lambda task: GuessTheNumber(), sampling)
    episodes = graph.stage("episodes", play, workers=16)
    groups = graph.group("groups", episodes)
    counted = graph.sink("counted", count)
    tasks >> once >> episodes >> groups >> counted
    await Run(graph.build()).finish()
    print(f"{len(turns)} numbers found in at most {max(turns):.0f} turns, {np.mean(turns):.1f} on average")


if __name__ == "__main__":
    asyncio.run(main())
