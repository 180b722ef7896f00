"""A Gymnasium environment with a discrete action space, played in words: one action a turn.

The task says which environment (``stages/tasks/seeds.py`` makes such tasks), this says how it is shown. Not for
continuous actions: give ``make`` an environment whose wrapper makes them discrete.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np

from stages.envs.adapters.key import seed_of
from stages.envs.adapters.spoken import spoken
from stages.envs.adapters.toy_text import TOY_TEXT, Describe, Words
from stages.envs.adapters.turns import InvalidActions, named_action
from stages.envs.custom import CustomEnv, cut, earned, over
from stages.envs.environment import Reply
from stages.packages import optional_package
from stages.records import Message, Task
from stages.tools.tool import bounded

OPENING = "{prompt}\n\n{observation}\n\nAnswer with one of: {actions}."


class GymnasiumEnv(CustomEnv):
    """One episode of an environment. Each turn has its reward, and their sum is the score's part ``reward``."""

    def __init__(
        self,
        make: Callable[[Task], Any] | None = None,
        *,
        actions: Mapping[str, int] | None = None,
        describe: Describe | None = None,
        opening: str = OPENING,
        max_invalid: int = 3,
        max_chars: int = 4000,
    ):
        """Configure.

        Args:
            make: gives the Gymnasium environment of a task; ``None`` makes ``task.extra["env_id"]`` with the keyword
                arguments ``task.extra["options"]``.
            actions: number of each action by its name; ``None`` for names known of the environment, or else its numbers.
            describe: what an observation says; ``None`` for words known of the environment, or else its space's values.
            opening: the first message. ``{prompt}``, ``{observation}`` and ``{actions}`` stand for the task's prompt, the first
                observation and the names of the actions.
            max_invalid: the episode ends after so many turns in a row that name no action.
            max_chars: most characters of a message.
        """
        self._make = make
        self._given_actions = None if actions is None else {name.lower(): number for name, number in actions.items()}
        self._given_describe = describe
        self._opening = opening
        self._max_invalid = max_invalid
        self._max_chars = max_chars
        self._env: Any = None

    def reset(self, task: Task, key: tuple[int, int, int, int]) -> str:
        """See ``Environment.reset``. The task's seed decides where all members of its group begin, the key what follows.

        Raises:
            MissingPackageError: Gymnasium is not installed.
            ValueError: the action space is not discrete, or an observation has no words.
        """
        self.close()
        self._reward, self._invalid = 0.0, InvalidActions(self._max_invalid)
        observation = self._begin(task, key)
        text = self._opening.format(prompt=task.prompt, observation=observation, actions=", ".join(self._actions))
        return bounded(text.strip(), self._max_chars)

    def step(self, message: Message) -> Reply:
        """See ``Environment.step``. The last observation is in the reply, whoever ended the episode."""
        action = None if message.calls else named_action(message.content, self._actions)
        if action is None:
            refused = self._invalid.refuse(message, f"one of {', '.join(self._actions)}", self._max_chars)
            return msgspec.structs.replace(refused, reward=0.0)
        self._invalid.accept()
        observation, given, terminated, truncated, _ = self._env.step(action)
        reward = float(given)
        self._reward += reward
        text = bounded(self._describe(self._env.unwrapped, observation), self._max_chars)
        if terminated:
            return over(text, reward)
        return cut("cut by the environment's own limit", text, reward) if truncated else earned(reward, text)

    def score(self) -> float:
        """See ``Environment.score``."""
        return self._reward

    def close(self) -> None:
        """See ``Environment.close``."""
        env, self._env = self._env, None
        if env is not None:
            env.close()

    def _begin(self, task: Task, key: tuple[int, int, int, int]) -> str:
        self._env = env = (self._make or _make)(task)
        seed = task.extra.get("seed")
        observation, _ = env.reset(seed=seed_of(key) if seed is None else seed)
        if seed is not None:
            env.unwrapped.np_random = np.random.default_rng(key)
        known = TOY_TEXT.get(env.spec.name if env.spec else "", Words(()))
        self._actions = self._given_actions or _action_names(env.action_space, known.actions)
        self._describe = self._given_describe or known.describe or (lambda env, observation: spoken(observation))
        return self._describe(env.unwrapped, observation)


def _make(task: Task) -> Any:
    gymnasium = optional_package("gymnasium", "gymnasium", "GymnasiumEnv")
    return gymnasium.make(task.extra["env_id"], **task.extra.get("options", {}))


def _action_names(space: Any, known: tuple[str, ...]) -> dict[str, int]:
    count, start = getattr(space, "n", None), getattr(space, "start", None)
    if count is None or start is None:
        raise ValueError(
            f"expected a discrete action space; got {space}, in GymnasiumEnv.reset; give make= one with a wrapper that "
            "makes it discrete, or name the actions with actions="
        )
    names = known if len(known) == count else tuple(str(int(start) + index) for index in range(int(count)))
    return {name: int(start) + index for index, name in enumerate(names)}
