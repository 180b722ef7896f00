"""An environment of your own: a guessing game over several turns, played by a policy that follows a script.

``CustomEnv`` has four methods, plain or async; two of them must be there. ``check_env`` plays it with turns at random, as a
test of yours would: whatever a model says must be answered. To play it yourself:
``headrace try examples/own_environment.py:GuessTheNumber --agent human``.
"""

import asyncio
import re

from flow import Context, Gathered, Graph, Run
from stages.agents.model_agent import ModelAgent
from stages.agents.sampling import SamplingConfig
from stages.envs.custom import CustomEnv, over
from stages.envs.environment import Reply
from stages.envs.testing import check_env
from stages.episodes import Episodes
from stages.records import Episode, Message, Task
from stages.scripted import ScriptedPolicy
from stages.text.compact import CompactChat

TASKS = [Task(str(number), "guess a number", answer=str(number)) for number in range(1, 101)]


class GuessTheNumber(CustomEnv):
    """Say a number from 1 to 100; the answer is higher, lower, or the end."""

    def reset(self, task: Task, key: tuple[int, int, int, int]) -> str:
        self.secret, self.turns = int(task.answer or 0), 0
        return task.prompt

    def step(self, message: Message) -> str | Reply:
        self.turns += 1
        if not re.fullmatch(r"\d{1,3}", message.content):
            return "a number, please"
        if int(message.content) == self.secret:
            return over()
        return "higher" if int(message.content) < self.secret else "lower"

    def score(self) -> dict[str, float]:
        return {"turns": float(self.turns)}


def binary_search(talk: str, turn: int) -> str:
    """What the policy says: it reads the conversation so far and halves the interval."""
    low, high = 1, 100
    for guess, answer in re.findall(r"(\d+)<\|end\|><\|user\|>(higher|lower)", talk):
        low, high = (int(guess) + 1, high) if answer == "higher" else (low, int(guess) - 1)
    return str((low + high) // 2)


async def main() -> None:
    chat = CompactChat()
    sampling = SamplingConfig(max_tokens_per_turn=8, max_turns=8)
    turns: list[float] = []

    def count(group: Gathered[Episode], context: Context) -> None:
        turns.append(group.members[0].parts["turns"])

    graph = Graph("guessing")
    tasks = graph.source("tasks", TASKS)
    once = graph.repeat("once", tasks, n=1)
    play = Episodes(ScriptedPolicy(chat, binary_search), chat, ModelAgent(), lambda task: GuessTheNumber(), sampling)
    episodes = graph.stage("episodes", play, workers=16)
    groups = graph.group("groups", episodes)
    counted = graph.sink("counted", count)
    tasks >> once >> episodes >> groups >> counted
    await Run(graph.build()).finish()
    print(f"{len(turns)} numbers found in at most {max(turns):.0f} turns, {sum(turns) / len(turns):.1f} on average")


if __name__ == "__main__":
    check_env(lambda task: GuessTheNumber(), TASKS)
    asyncio.run(main())
