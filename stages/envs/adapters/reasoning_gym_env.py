"""A question of reasoning-gym, answered in one turn and scored by its data set.

Tasks come from ``stages/tasks/reasoning_gym.py``. Some data sets evaluate the answer as an expression, or as Python, which may
never end: the scorer runs in a process of its own that is killed when it takes too long. That bounds time. It is no sandbox.
"""

import re
from collections.abc import Callable

import anyio
from anyio import BrokenWorkerProcess, to_process

from stages.envs.environment import Opening, Reply, opening_messages
from stages.records import Message, Status, Task
from stages.tasks.reasoning_gym import reasoning_gym_score

_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)


class ReasoningGymEnv:
    """One question.

    The score's part ``reward`` is the data set's own, mostly from 0 to 1. Where its scorer raised or took too long, the answer
    is none: reward 0, and ``unscored`` is 1.
    """

    def __init__(self, *, system: str | None = None, score_s: float = 10.0, max_chars: int = 4000):
        """Configure.

        Args:
            system: text of a system message, such as one that asks for the answer between ``<answer>`` and ``</answer>``;
                ``None`` for none.
            score_s: most seconds of the data set's scorer, the start of its process aside.
            max_chars: an answer of more characters is handed on as its beginning.
        """
        self._system = system
        self._score_s = score_s
        self._max_chars = max_chars
        self._task: Task | None = None
        self._answer: str | None = None

    async def reset(self, task: Task, key: tuple[int, int, int, int]) -> Opening:
        """See ``Environment.reset``."""
        self._task, self._answer = task, None
        return Opening(opening_messages(task, self._system))

    async def step(self, message: Message) -> Reply:
        """See ``Environment.step``. What stands in the last ``<answer>`` element is the answer, or else the whole turn."""
        found = _ANSWER.findall(message.content)
        self._answer = (found[-1] if found else message.content).strip()[: self._max_chars]
        return Reply(end=Status.FINISHED)

    async def score(self) -> dict[str, float]:
        """See ``Environment.score``. An episode without an answer scores 0."""
        if self._task is None or self._answer is None:
            return {"reward": 0.0, "unscored": 0.0}
        await _in_process(reasoning_gym_score, self._task, "")
        value: float | None = None
        with anyio.move_on_after(self._score_s):
            value = await _in_process(reasoning_gym_score, self._task, self._answer)
        return {"reward": value or 0.0, "unscored": float(value is None)}

    async def close(self) -> None:
        """Nothing to free: processes that scored wait for the next answer and end with the loop."""


async def _in_process(function: Callable[[Task, str], float | None], task: Task, answer: str) -> float | None:
    try:
        return await to_process.run_sync(function, task, answer, cancellable=True)
    except BrokenWorkerProcess as error:
        raise RuntimeError(
            f"expected a process to score in; got {error.__cause__ or error}, in ReasoningGymEnv.score; a program that starts "
            'processes needs if __name__ == "__main__": around what it runs'
        ) from error
