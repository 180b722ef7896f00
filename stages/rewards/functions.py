"""The kinds of reward functions: what each is given, and how many numbers it owes. No function itself, and no weights.

A plain callable is a function of one episode that sees the policy's own words. What needs more says so with a kind from here.
All may be sync or async: that is decided by what the call returns.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from flow import Context
from stages.records import Episode
from stages.rewards.environment import turn_rewards

Sees = Literal["own", "all"]
"""``own``: the episode with the policy's own words alone, as messages and as tokens (``own.py``). ``all``: the whole episode,
with what tools, environments and prompts said: whoever reads those, or token ids by their places, must ask for it. There the
answer may stand in words that are not the policy's."""

RewardFunction = Callable[[Episode], float | Awaitable[float]]
"""One number for one episode. Any callable object will do."""


@dataclass(frozen=True)
class EpisodeReward:
    """One number for one episode.

    Attributes:
        function: the function.
        sees: what it is given of the episode.
    """

    function: RewardFunction
    sees: Sees = "own"


@dataclass(frozen=True)
class ContextReward:
    """One number for one episode, by a function that uses what the graph has: permits of its pools, spans in its trace.

    Attributes:
        function: the function, of the episode and the context.
        sees: what it is given of the episode.
    """

    function: Callable[[Episode, Context], float | Awaitable[float]]
    sees: Sees = "own"


@dataclass(frozen=True)
class GroupReward:
    """One number for each of the episodes of a group, in their order: for what can only be told by comparison.

    Attributes:
        function: of all members that have not failed so far, in member order.
        sees: what it is given of each.
    """

    function: Callable[[Sequence[Episode]], Sequence[float] | Awaitable[Sequence[float]]]
    sees: Sees = "own"


@dataclass(frozen=True)
class TurnReward:
    """One number for each turn of an episode. Their sum is the part; each stays with its turn (``Episode.turn_rewards``).

    Attributes:
        function: in the order of ``Episode.turns``; by default what the environment gave turn by turn.
        sees: what it is given of the episode.
    """

    function: Callable[[Episode], Sequence[float] | Awaitable[Sequence[float]]] = turn_rewards
    sees: Sees = "own"


Function = RewardFunction | EpisodeReward | ContextReward | GroupReward | TurnReward
