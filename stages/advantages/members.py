"""What every rule over the members of a group shares: which rewards are looked at, and when they are one and the same. Pure.

An advantage is finite, whatever finite rewards it was made from: statistics are over numbers of about 1 (``in_units``), so that
none of them overflows or vanishes, and one that float32 does not hold is an error (``single``).

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
    units, exponent = in_units(values)
    largest = max(float(np.abs(units).max()), float(out_of_units(np.float64(magnitude), -exponent)))
    return bool(np.ptp(units) <= CONSTANT_TOLERANCE * largest)


def in_units(values: np.ndarray) -> tuple[np.ndarray, int]:
    """Values over a power of 2, and its exponent: the largest magnitude is from 0.5 to 1. Nothing is rounded.

    Args:
        values: float64 [n], finite, at least one.
    """
    exponent = int(np.frexp(np.abs(values).max())[1])
    return np.ldexp(values, -exponent), exponent


def out_of_units(values: np.ndarray | np.float64, exponent: int) -> np.ndarray:
    """Back again; infinite where float64 does not hold it."""
    with np.errstate(over="ignore"):
        return np.ldexp(values, exponent)


def single(values: np.ndarray, rule: str, place: str) -> np.ndarray:
    """Values as float32; those that are too small for it are 0.

    Args:
        values: float [n].
        rule: whose they are, for error messages.
        place: what n counts.

    Raises:
        ValueError: float32 does not hold one.
    """
    with np.errstate(over="ignore"):
        cast = np.asarray(values).astype(np.float32)
    if not np.isfinite(cast).all():
        at = int(np.flatnonzero(~np.isfinite(cast))[0])
        raise ValueError(
            f"{rule}: expected advantages and returns of at most {np.finfo(np.float32).max:.2g}, which float32 holds, got "
            f"{float(values[at]):.3g} at {place} {at}; make the rewards smaller, or take a rule that scales them"
        )
    return cast


def placed(values: np.ndarray, live: np.ndarray, rule: str) -> np.ndarray:
    """Values of the live members in the places of all, float32 [n]; 0 where not live.

    Raises:
        ValueError: see ``single``.
    """
    placed = np.zeros(len(live), dtype=np.float64)
    placed[live] = values
    return single(placed, rule, "member")
