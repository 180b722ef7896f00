"""Scores the members of a group: ``Gathered[Episode] -> Group``.

What a reward *is* lives in pure functions beside this file; what happens to a group with missing members is the barrier's
declared policy. This stage only applies the functions and states what a score that is none means:

* A member that failed is handed on, and not scored: its reward stays ``None``, so that it is counted and trains nothing. One
  that failed without leaving an episode is missing.
* A function that raises, or gives anything but one finite number, fails *that member*: status ``environment_error``, one line
  of error that names the function, reward ``None``. It takes no part in statistics and trains nothing. It is never a zero:
  a zero would teach the policy that it was wrong. Functions that come later are not asked about it.
* A function of the whole group that raises, or gives another number of rewards than there were episodes, fails all that it was
  asked about: nobody can tell which number is whose.
* The other members keep their rewards.
"""

import inspect
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence

import anyio

from flow import Context, Gathered
from stages.policy import PolicyEnded
from stages.records import Episode, Group
from stages.rewards.functions import ContextReward, EpisodeReward, Function, GroupReward, TurnReward
from stages.rewards.score import Score, checked_list, failing
from stages.tools.context import UndeclaredPoolError
from stages.tools.credentials import Uses


class Rewards:
    """The weighted sum of named reward functions, member by member.

    Functions run on the event loop, in their order; the members of a group are asked about at the same time, so that slow ones
    wait together. One that can block belongs behind ``anyio.to_thread`` or on a node that is placed on threads.

    Args:
        functions: name -> (function, weight); kinds of functions are in ``functions.py``. The reward is the sum of weight times
            value; the unweighted values are kept in ``Episode.parts`` under these names.

    Raises:
        ValueError: no functions, or a weight that is not finite.
    """

    def __init__(self, functions: Mapping[str, tuple[Function, float]]) -> None:
        if not functions:
            raise ValueError("Rewards: expected at least one function, got none; pass {'answer': (exact_answer, 1.0)}")
        for name, (_, weight) in functions.items():
            if not math.isfinite(weight):
                raise ValueError(f"Rewards: expected a finite weight, got {weight} for {name!r}; weigh it 0 to only measure it")
        self._functions = dict(functions)

    async def __call__(self, gathered: Gathered[Episode], context: Context) -> Group:
        """Score each member; the group holds all that left an episode, failed ones too, in member order.

        Raises:
            PolicyEnded: a judge's model will never answer again.
            UndeclaredPoolError: a function asks for a pool that the graph lacks.
        """
        scores = [Score(episode) for episode in gathered.members]
        for name, (function, weight) in self._functions.items():
            await _apply(name, function, weight, [score for score in scores if score.open], context)
        episodes = sorted((*(score.done() for score in scores), *gathered.failed), key=lambda episode: episode.member)
        return Group(birth=gathered.birth, episodes=tuple(episodes))


async def _apply(name: str, function: Function, weight: float, scores: list[Score], context: Context) -> None:
    if isinstance(function, GroupReward):
        await _compare(name, function, weight, scores)
        return

    async def one(score: Score) -> None:
        with score.failing(name):
            match function:
                case TurnReward():
                    score.add_turns(name, weight, await _awaited(function.function(score.seen(function.sees))))
                case ContextReward():
                    score.add(name, weight, await _awaited(function.function(score.seen(function.sees), context)))
                case EpisodeReward():
                    score.add(name, weight, await _awaited(function.function(score.seen(function.sees))))
                case _:
                    score.add(name, weight, await _awaited(function(score.seen("own"))))

    await _together(one, scores)


async def _compare(name: str, function: GroupReward, weight: float, scores: list[Score]) -> None:
    if not scores:
        return
    values: Sequence[object] = ()
    with failing(name, scores, Uses({})):
        given = await _awaited(function.function([score.seen(function.sees) for score in scores]))
        values = checked_list(given, len(scores), "episodes")
    for score, value in zip(scores, values, strict=False):
        with score.failing(name):
            score.add(name, weight, value)


async def _awaited(value: object) -> object:
    return await value if inspect.isawaitable(value) else value


async def _together(one: Callable[[Score], Awaitable[None]], scores: Sequence[Score]) -> None:
    """Run it for all members at the same time. What ends the run is raised alone, the others are cancelled."""
    ends: list[Exception] = []

    async def run(score: Score) -> None:
        try:
            await one(score)
        except (PolicyEnded, UndeclaredPoolError) as error:
            ends.append(error)
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for score in scores:
            tasks.start_soon(run, score)
    if ends:
        raise ends[0]
