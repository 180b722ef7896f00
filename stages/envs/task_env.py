"""One question, one answer: the episode is over after the first turn. For several turns with tools see ``tool_env.py``."""

from stages.envs.environment import Opening, Reply, Scorer, opening_messages
from stages.records import Message, Status, Task


class TaskEnv:
    """Asks the task's prompt and takes the first turn as the answer."""

    def __init__(self, *, system: str | None = None, scorer: Scorer | None = None):
        """Configure.

        Args:
            system: text of a system message; ``None`` for none.
            scorer: scores the answer; ``None`` leaves it to the reward stage.
        """
        self._system = system
        self._scorer = scorer
        self._task: Task | None = None
        self._said: tuple[Message, ...] = ()

    async def reset(self, task: Task, key: tuple[int, int, int, int]) -> Opening:
        """See ``Environment.reset``."""
        self._task, self._said = task, ()
        return Opening(opening_messages(task, self._system))

    async def step(self, message: Message) -> Reply:
        """See ``Environment.step``."""
        self._said = (message,)
        return Reply(end=Status.FINISHED)

    async def score(self) -> dict[str, float] | None:
        """See ``Environment.score``."""
        if self._scorer is None or self._task is None:
            return None
        return self._scorer(self._task, self._said)

    async def close(self) -> None:
        """Nothing to free."""
