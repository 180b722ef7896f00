"""One member while it is scored: its parts, what of them belongs to which turn, and what went wrong. Not the stage.

What a number must be, and whose failure it is when there is none, is decided here, for functions of every kind.
"""

import asyncio
import functools
import math
import sys
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import msgspec
import numpy as np

from stages.cancellation import cancel_requested
from stages.exits import exits_as_errors
from stages.policy import PolicyEnded
from stages.records import Episode, Status
from stages.rewards.functions import Sees
from stages.rewards.own import own_words
from stages.tools.context import UndeclaredPoolError
from stages.tools.credentials import Uses, blanked, uses_into


class Score:
    """What a member has come to so far.

    Attributes:
        episode: the member, as it was gathered.
        error: why it has failed; ``None`` while it has not.
    """

    def __init__(self, episode: Episode) -> None:
        self.episode = episode
        self.error: str | None = None
        self._parts = dict(episode.parts)  # what the environment scored stays beside it
        self._weighted: list[float] = []
        self._reward = 0.0
        self._turns: list[float] | None = None
        self._secrets = Uses({})

    @property
    def open(self) -> bool:
        """Whether there is still something to score."""
        return self.episode.status.rule.scored and self.error is None

    def seen(self, sees: Sees) -> Episode:
        """The episode, as far as a function may see it."""
        return self.episode if sees == "all" else self._own

    @functools.cached_property
    def _own(self) -> Episode:
        return own_words(self.episode)

    def add(self, name: str, weight: float, value: object) -> None:
        """Add a part.

        Raises:
            ValueError: it is not one finite number, or with it the reward is none.
        """
        number = checked_number(value, "for one episode")
        self._take(name, number, weight * number)

    def add_turns(self, name: str, weight: float, values: object) -> None:
        """Add a part that is the sum of one number for each turn.

        Raises:
            ValueError: they are not one finite number for each turn, or with them the reward is none.
        """
        given = checked_list(values, len(self.episode.turns), "turns")
        numbers = [checked_number(value, "for each turn") for value in given]
        before = [0.0] * len(numbers) if self._turns is None else self._turns
        turns = [finite_sum((former, weight * number)) for former, number in zip(before, numbers, strict=True)]
        total = finite_sum(numbers)
        self._take(name, total, weight * total)
        self._turns = turns

    def _take(self, name: str, number: float, weighted: float) -> None:
        self._reward = finite_sum((*self._weighted, weighted))
        self._weighted.append(weighted)
        self._parts[name] = number

    def fail(self, name: str, problem: str) -> None:
        """The function of a name gave no reward: the member has none."""
        self.error = f"reward {name!r}: {problem}"

    def done(self) -> Episode:
        """The member with its reward; failed where it has none; as it was where it had failed before."""
        if not self.episode.status.rule.scored:
            return self.episode
        if self.error is not None:
            return msgspec.structs.replace(
                self.episode, status=Status.ENVIRONMENT_ERROR, error=self.error, reward=None, parts=self._parts
            )
        turns = None if self._turns is None else tuple(self._turns)
        return msgspec.structs.replace(self.episode, reward=self._reward, parts=self._parts, turn_rewards=turns)

    def failing(self, name: str) -> AbstractContextManager[None]:
        """A block whose failure is this member's alone; see ``failing``."""
        return failing(name, [self], self._secrets)


@contextmanager
def failing(name: str, scores: "list[Score]", secrets: Uses) -> Generator[None]:
    """A block that runs a function which is not ours: whatever it raises is a failure of these members.

    No secret that it used is told. What ends the run passes through: a cancellation that somebody asked for, a model that will
    never answer again, a pool that the graph does not have.
    """
    try:
        with uses_into(secrets), exits_as_errors():
            yield
        return
    except asyncio.CancelledError:
        if cancel_requested():
            raise
        problem = "it was cancelled, though nobody asked for it"
    except (PolicyEnded, UndeclaredPoolError):
        raise
    except Exception as error:
        with uses_into(secrets):
            problem = blanked(f"{type(error).__name__}: {error}")
    for score in scores:
        score.fail(name, problem)


def checked_number(value: object, what: str) -> float:
    """A finite number.

    Raises:
        ValueError: it is none.
    """
    # A list or an array is refused even if it holds one number: broadcasting it over the group would hide the mistake.
    real = isinstance(value, int | float | np.integer | np.floating | np.bool_) and not isinstance(value, np.timedelta64)
    if not real or not math.isfinite(value):
        raise ValueError(f"expected one finite number {what}, got {_shown(value)}")
    return float(value)


def finite_sum(numbers: Iterable[float]) -> float:
    """Their sum, rounded once.

    Raises:
        ValueError: no float holds it, or a part of it.
    """
    numbers = list(numbers)
    try:
        total = math.fsum(numbers)
    except OverflowError:
        total = math.inf
    if not math.isfinite(total):
        raise ValueError(
            f"expected a reward of at most {sys.float_info.max:.2g} from weights times values, got {_shown(numbers)} to add; "
            "give smaller numbers or weights"
        )
    return total


def checked_list(values: Any, length: int, what: str) -> list[Any]:
    """As many values as there are of something.

    Raises:
        ValueError: there are not.
    """
    if not isinstance(values, list | tuple | np.ndarray) or np.ndim(values) == 0:
        raise ValueError(f"expected a list of {length} numbers for {length} {what}, got {_shown(values)}")
    if len(values) != length:
        raise ValueError(f"expected {length} numbers for {length} {what}, got {len(values)}: {_shown(values)}")
    return list(values)


def _shown(value: object) -> str:
    text = blanked(f"{type(value).__name__} {value!r}")
    return text if len(text) <= 80 else text[:77] + "..."
