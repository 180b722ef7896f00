"""What every rule over the members of a group shares: which rewards are looked at, and when they are one and the same. Pure.

Not a rule: those have files of their own beside this one and call it first.
"""

import numpy as np

CONSTANT_TOLERANCE = 8 * float(np.finfo(np.float32).eps)
"""Numbers whose spread is within this share of the largest magnitude are one number, rounded differently."""


def live_rewards(rewards: np.ndarray, live: np.ndarray, rule: str) -> np.ndarray:
    """Rewards of the live members, float64 [live members].

    Args:
        rewards: float [n]; entries of members that are not live are ignored and may be NaN.
        live: bool [n].
        rule: who asks, for error messages.

    Raises:
        ValueError: shapes differ, or a live reward is not finite.
    """
    rewards = np.asarray(rewards, dtype=np.float64)
    live = np.asarray(live, dtype=bool)
    if rewards.ndim != 1 or rewards.shape != live.shape:
        raise ValueError(
            f"{rule}: expected rewards and live of one shape [members], got {rewards.shape} and {live.shape}; "
            "call it once for each group"
        )
    members = rewards[live]
    if not np.isfinite(members).all():
        raise ValueError(
            f"{rule}: expected finite rewards of live members, got {members.tolist()}; a member without a reward is not live"
        )
    return members


def is_constant(values: np.ndarray, magnitude: float = 0.0) -> bool:
    """Whether all values are one, up to the rounding of float32. So is a single one, and none.

    Args:
        values: float64 [n], finite.
        magnitude: the largest magnitude of what the values were summed from, where that is above their own: rounding is as
            large as what was rounded.
    """
    if values.size < 2:
        return True
    return bool(np.ptp(values) <= CONSTANT_TOLERANCE * max(float(np.abs(values).max()), magnitude))


def placed(values: np.ndarray, live: np.ndarray) -> np.ndarray:
    """Values of the live members in the places of all, float32 [n]; 0 where not live."""
    placed = np.zeros(len(live), dtype=np.float32)
    placed[live] = values
    return placed
