"""Scores the members of a group: ``Gathered[Episode] -> Group``.

What a reward *is* lives in pure functions beside this file; what happens to a group with missing members is the barrier's
declared policy. This stage only applies the functions and states what a score that is none means:

* A member that failed is handed on, and not scored: its reward stays ``None``, so that it is counted and trains nothing. One
  that failed without leaving an episode is missing.
* A function that raises, or gives anything but one finite number, fails *that member*: status ``environment_error``, one line
  of error that names the function, reward ``None``. It takes no part in statistics and trains nothing. It is never a zero:
  a zero would teach the policy that it was wrong.
* The other members keep their rewards.
"""

import inspect
import math
from collections.abc import Awaitable, Callable, Mapping

import msgspec
import numpy as np

from flow import Context, Gathered
from stages.exits import exits_as_errors
from stages.records import Episode, Group, Status
from stages.tools.credentials import Uses, blanked, uses_into

RewardFunction = Callable[[Episode], float | Awaitable[float]]
"""One number for one episode. Sync or async is decided by what the call returns, so any callable object will do."""


class Rewards:
    """The weighted sum of named reward functions, member by member.

    Functions run on the event loop, one after another; one that can block belongs behind ``anyio.to_thread`` or on a node that
    is placed on threads.

    Args:
        functions: name -> (function, weight). The reward is the sum of weight times value; the unweighted values are kept in
            ``Episode.parts`` under these names.

    Raises:
        ValueError: no functions, or a weight that is not finite.
    """

    def __init__(self, functions: Mapping[str, tuple[RewardFunction, float]]) -> None:
        if not functions:
            raise ValueError("Rewards: expected at least one function, got none; pass {'answer': (exact_answer, 1.0)}")
        for name, (_, weight) in functions.items():
            if not math.isfinite(weight):
                raise ValueError(f"Rewards: expected a finite weight, got {weight} for {name!r}; weigh it 0 to only measure it")
        self._functions = dict(functions)

    async def __call__(self, gathered: Gathered[Episode], context: Context) -> Group:
        """Score each member; the group holds all that left an episode, failed ones too, in member order."""
        scored = [await self._scored(episode) for episode in gathered.members]
        episodes = sorted((*scored, *gathered.failed), key=lambda episode: episode.member)
        return Group(birth=gathered.birth, episodes=tuple(episodes))

    async def _scored(self, episode: Episode) -> Episode:
        if not episode.status.rule.scored:
            return episode
        parts = dict(episode.parts)  # what the environment scored stays beside it
        secrets = Uses({})
        for name, (function, _) in self._functions.items():
            try:
                with uses_into(secrets):
                    parts[name] = await _call(function, episode)
            except Exception as error:
                with uses_into(secrets):
                    problem = blanked(f"reward {name!r}: {type(error).__name__}: {error}")
                return msgspec.structs.replace(
                    episode, status=Status.ENVIRONMENT_ERROR, error=problem, reward=None, parts=parts
                )
        total = math.fsum(weight * parts[name] for name, (_, weight) in self._functions.items())
        return msgspec.structs.replace(episode, reward=total, parts=parts)


async def _call(function: RewardFunction, episode: Episode) -> float:
    with exits_as_errors():
        value = function(episode)
        if inspect.isawaitable(value):
            value = await value
    # A list or an array is refused even if it holds one number: broadcasting it over the group would hide the mistake.
    if not isinstance(value, int | float | np.number | np.bool_) or not math.isfinite(value):
        raise ValueError(f"expected one finite number for one episode, got {_shown(value)}")
    return float(value)


def _shown(value: object) -> str:
    text = blanked(f"{type(value).__name__} {value!r}")
    return text if len(text) <= 80 else text[:77] + "..."
