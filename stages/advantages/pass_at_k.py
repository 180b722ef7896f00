"""Pass@k advantages: what a member adds to the best of k, not to the average of one. Pure NumPy, one group at a time."""

import math

import numpy as np

from stages.advantages.members import CONSTANT_TOLERANCE, in_units, is_constant, live_rewards, placed


def pass_at_k(rewards: np.ndarray, live: np.ndarray, k: int, magnitude: float = 0.0) -> np.ndarray:
    """The mean best reward of the k-subsets that hold the member, minus that of all k-subsets, over their deviation.

    Every k-subset of the live members is one vote; its reward is its best member's. With ``k=1`` it is ``group_advantages``.
    All zeros where no two subsets differ: up to k live members, a constant group, and one in which every k members hold a best
    one (all up to the rounding of float32); and where so few do that their deviation is below that rounding.

    Args:
        rewards: float [n]; entries of members that are not live are ignored and may be NaN.
        live: bool [n]: members that take part.
        k: members of a subset, at least 1.
        magnitude: see ``is_constant``.

    Returns:
        float32 [n]; 0 where not live.

    Raises:
        ValueError: shapes differ, a live reward is not finite, or k is below 1.

    Source: Chen et al. 2025, "Pass@k Training for Adaptively Balancing Exploration and Exploitation of Large Reasoning Models"
        (arXiv 2508.10751), the analytical derivation: for rewards of 0 and 1 the mean of the subsets is
        1 - C(negatives, k) / C(n, k), and that of the subsets with a given negative
        1 - C(negatives - 1, k - 1) / C(n - 1, k - 1).
        We differ: the same over the maximum of any real rewards, counted by rank; float64 and exact binomials inside; no
        epsilon; members that are not live are left out.
    """
    if k < 1:
        raise ValueError(f"pass_at_k: expected k of at least 1, got {k}; k=1 is the mean reward")
    members = live_rewards(rewards, live, "pass_at_k")
    zeros = np.zeros(len(live), np.float32)
    if members.size <= k or is_constant(members, magnitude):
        return zeros
    order = np.argsort(members, kind="stable")
    # The k - 1 smallest are never the best of k.
    if is_constant(members[order][k - 1 :], max(magnitude, float(np.abs(members).max()))):
        return zeros
    ranked, _ = in_units(members[order])
    shares = _shares_of_best(members.size, k)
    mean = shares @ ranked
    deviation = math.sqrt(shares @ (ranked - mean) ** 2)
    if deviation <= CONSTANT_TOLERANCE:  # where hardly a subset differs, only rounding would be left over it
        return zeros
    advantages = np.empty_like(members)
    advantages[order] = (_means_with(ranked, k) - mean) / deviation
    return placed(advantages, live, "pass_at_k")


def _shares_of_best(n: int, k: int) -> np.ndarray:
    """Of all k-subsets of n the share whose best member is the one of each rank, float64 [n]."""
    return np.array([math.comb(rank, k - 1) for rank in range(n)], dtype=np.float64) / math.comb(n, k)


def _means_with(ranked: np.ndarray, k: int) -> np.ndarray:
    """Mean best reward of the k-subsets that hold the member of each rank, float64 [n]."""
    n = len(ranked)
    # Itself, with k - 1 below it; or one above it, with k - 2 of those below that one, itself apart.
    itself = np.array([math.comb(rank, k - 1) for rank in range(n)], dtype=np.float64)
    above = np.array([math.comb(rank - 1, k - 2) if k > 1 and rank > 0 else 0 for rank in range(n)], dtype=np.float64)
    behind = np.cumsum((above * ranked)[::-1])[::-1] - above * ranked
    return (itself * ranked + behind) / math.comb(n - 1, k - 1)
