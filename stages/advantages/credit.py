"""From a group to the arrays that a rule takes, and back to one advantage for each token. Pure; the maths is in the rules.

Each rule has a file of its own. Here stands what they have in common: who takes part, what is taken off for the distance to a
reference, and where a number goes among the tokens of an episode.

Axes: T tokens of an episode.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from stages.advantages.config import AdvantagesConfig
from stages.advantages.distill import distillation
from stages.advantages.gae import gae
from stages.advantages.grpo import group_advantages
from stages.advantages.kl import kl_estimate
from stages.advantages.members import single
from stages.advantages.pass_at_k import pass_at_k
from stages.advantages.reinforce_pp import returns_to_go
from stages.advantages.returns import discounted_returns
from stages.advantages.rloo import leave_one_out
from stages.advantages.timeline import Trajectory, trajectories
from stages.advantages.turns import turn_advantages
from stages.records import Episode

Arrays = tuple[np.ndarray, ...]


class Credit(NamedTuple):
    """What a rule says of a group; each a float32 [T] for each member, 0 where there is nothing to say."""

    advantages: Arrays
    returns: Arrays | None = None
    """What the critic should have said; ``None`` where there is none."""


def is_live(episode: Episode, config: AdvantagesConfig) -> bool:
    """True where a member takes part: not failed nor masked, with a token to train, and scored where the rule reads rewards."""
    rule = episode.status.rule
    scored = episode.reward is not None or config.needs_teacher
    masked = config.overlong == "mask" and rule.end == "truncated"
    return scored and rule.counts and not masked and episode.num_sampled > episode.num_untrained


def credit(episodes: Sequence[Episode], live: np.ndarray, config: AdvantagesConfig) -> Credit:
    """Advantages of a group by the configured rule.

    Args:
        episodes: its members.
        live: bool [members]; see ``is_live``. Nothing of the others is looked at.
        config: the rule and its settings.

    Raises:
        ValueError: a live member lacks what the rule reads or has a number there that is not finite, or float32 does not hold
            an advantage.
    """
    penalties = tuple(_penalties(episode, config) if alive else None for episode, alive in zip(episodes, live, strict=True))
    return _CREDIT[config.rule](_Members(tuple(episodes), live, penalties), config)


class _Members(NamedTuple):
    episodes: tuple[Episode, ...]
    live: np.ndarray
    penalties: "tuple[_Penalties | None, ...]"

    @property
    def given(self) -> np.ndarray:
        """Rewards as they were given, float64 [members]; NaN where not live."""
        rewards = zip(self.episodes, self.live, strict=True)
        return np.array([episode.reward if alive else np.nan for episode, alive in rewards], dtype=np.float64)

    @property
    def rewards(self) -> np.ndarray:
        """The same less all penalties of a member."""
        return self.given - np.array([taken.total if taken else 0.0 for taken in self.penalties])

    @property
    def magnitude(self) -> float:
        """The largest number that a reward was summed from."""
        return max((taken.magnitude for taken in self.penalties if taken), default=0.0)

    def trajectories(self) -> list[tuple[Trajectory, ...]]:
        """Of each member; none where not live."""
        given = zip(self.episodes, self.live, self.penalties, strict=True)
        return [trajectories(episode, taken.each if taken else None) if alive else () for episode, alive, taken in given]

    def spread(self, values: np.ndarray) -> Arrays:
        """One value for each member, on each of its trained tokens."""
        arrays = self.zeros()
        for value, episode, alive, array in zip(values, self.episodes, self.live, arrays, strict=True):
            if alive:
                array[_trained(episode)] = value
        return arrays

    def zeros(self) -> Arrays:
        return tuple(np.zeros(len(episode.ids), np.float32) for episode in self.episodes)


class _Penalties(NamedTuple):
    each: np.ndarray
    """float64 [T]"""
    total: float
    magnitude: float


def _penalties(episode: Episode, config: AdvantagesConfig) -> _Penalties | None:
    if config.kl_coefficient == 0.0:
        return None
    mask, reference = _trained(episode), _read(episode, "reference", "a scoring stage with the reference model")
    each = np.zeros(len(mask), np.float64)
    each[mask] = config.kl_coefficient * kl_estimate(episode.logprobs[mask], reference[mask], config.kl_estimator)
    summed = np.abs(episode.logprobs[mask]).sum(dtype=np.float64) + np.abs(reference[mask]).sum(dtype=np.float64)
    return _Penalties(each, float(each.sum()), config.kl_coefficient * float(summed))


def _grpo(members: _Members, config: AdvantagesConfig) -> Credit:
    return Credit(members.spread(group_advantages(members.rewards, members.live, config.scale, members.magnitude)))


def _rloo(members: _Members, config: AdvantagesConfig) -> Credit:
    return Credit(members.spread(leave_one_out(members.rewards, members.live, members.magnitude)))


def _pass_at_k(members: _Members, config: AdvantagesConfig) -> Credit:
    return Credit(members.spread(pass_at_k(members.rewards, members.live, config.k, members.magnitude)))


def _reinforce_pp(members: _Members, config: AdvantagesConfig) -> Credit:
    advantages = members.zeros()
    if config.baseline and members.live.sum() < 2:
        return Credit(advantages)  # nobody to be compared with
    centred = group_advantages(members.given, members.live, scale=False) if config.baseline else members.given
    for member, own in enumerate(members.trajectories()):
        for trajectory in own:
            rewards = trajectory.rewards.copy()
            rewards[-1] += centred[member] - members.given[member]
            with _whose(members.episodes[member]):
                advantages[member][trajectory.places] = returns_to_go(rewards, config.discount)
    return Credit(advantages)


def _gae(members: _Members, config: AdvantagesConfig) -> Credit:
    advantages, returns = members.zeros(), members.zeros()
    lived = [(member, own) for member, all_own in enumerate(members.trajectories()) for own in all_own]
    if not lived:
        return Credit(advantages, returns)
    for member, own in lived:
        with _whose(members.episodes[member]):
            single(own.rewards, "gae", "token")
    critic = "a scoring stage with the critic"
    values = [_read(members.episodes[member], "values", critic)[own.places] for member, own in lived]
    ends = np.concatenate([np.arange(len(own.places)) == len(own.places) - 1 for _, own in lived])
    over = [members.episodes[member].status.rule.end == "terminated" for member, _ in lived]
    last = [0.0 if is_over else value[-1] for value, is_over in zip(values, over, strict=True)]
    bootstraps = np.zeros(len(ends), np.float32)
    bootstraps[ends] = last
    rewards = np.concatenate([own.rewards for _, own in lived])
    found = gae(rewards, np.concatenate(values), ends, bootstraps, config.discount, config.gae_lambda)
    cuts = np.flatnonzero(ends)[:-1] + 1
    for (member, own), better, wanted in zip(lived, *(np.split(array, cuts) for array in found), strict=True):
        advantages[member][own.places] = better
        returns[member][own.places] = wanted
    return Credit(advantages, returns)


def _turns(members: _Members, config: AdvantagesConfig) -> Credit:
    advantages, lived = members.zeros(), members.trajectories()
    returns = [[discounted_returns(np.bincount(own.turns, own.rewards), config.discount) for own in each] for each in lived]
    joined = [np.concatenate([*each, np.zeros(0)]) for each in returns]
    found = turn_advantages(joined, members.live, config.scale, members.magnitude)
    for array, own, each, values in zip(advantages, lived, returns, found, strict=True):
        for trajectory, of_turns in zip(own, np.split(values, np.cumsum([len(turns) for turns in each])[:-1]), strict=False):
            array[trajectory.places] = of_turns[trajectory.turns]
    return Credit(advantages)


def _distill(members: _Members, config: AdvantagesConfig) -> Credit:
    advantages = members.zeros()
    for episode, alive, array in zip(members.episodes, members.live, advantages, strict=True):
        if alive:
            mask = _trained(episode)
            teacher = _read(episode, "teacher", "a scoring stage with the teacher")[mask]
            with _whose(episode):
                array[mask] = distillation(episode.logprobs[mask], teacher)
    return Credit(advantages)


_CREDIT: dict[str, Callable[[_Members, AdvantagesConfig], Credit]] = {
    "grpo": _grpo,
    "rloo": _rloo,
    "reinforce_pp": _reinforce_pp,
    "pass_at_k": _pass_at_k,
    "gae": _gae,
    "turns": _turns,
    "distill": _distill,
}


@contextmanager
def _whose(episode: Episode) -> Generator[None]:
    """A block whose rule knows tokens, and not whose they are."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"episode {episode.birth}.{episode.member}: {error}") from None


def _trained(episode: Episode) -> np.ndarray:
    """Sampled tokens of rows that are trained, bool [T]."""
    mask = np.zeros_like(episode.mask)
    for row in episode.all_rows:
        if row.trained:
            mask[row.start : row.stop] = episode.mask[row.start : row.stop]
    return mask


def _read(episode: Episode, name: str, giver: str) -> np.ndarray:
    """An array that a scoring stage filled, float32 [T]; finite where a trained token was sampled."""
    array: np.ndarray | None = getattr(episode, name)
    mask = _trained(episode)
    if array is None or not np.isfinite(array[mask]).all() or not np.isfinite(episode.logprobs[mask]).all():
        got = "None" if array is None else "NaN or infinity"
        raise ValueError(
            f"episode {episode.birth}.{episode.member}: expected a finite number in {name} and in logprobs for each trained "
            f"token, got {got} (advantages); put {giver} in front of Advantages"
        )
    return array
