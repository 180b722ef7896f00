"""Leave-one-out advantages: the reward of a member minus the mean reward of the others. Pure NumPy, one group at a time."""

import numpy as np

from stages.advantages.members import in_units, is_constant, live_rewards, out_of_units, placed


def leave_one_out(rewards: np.ndarray, live: np.ndarray, magnitude: float = 0.0) -> np.ndarray:
    """Reward minus the mean of the other live members.

    It is n / (n - 1) times the reward minus the mean of all n. A group of one live member, of none, and a constant group (up to
    the rounding of float32): all zeros.

    Args:
        rewards: float [n]; entries of members that are not live are ignored and may be NaN.
        live: bool [n]: members that take part.
        magnitude: see ``is_constant``.

    Returns:
        float32 [n]; 0 where not live.

    Raises:
        ValueError: shapes differ, a live reward is not finite, or float32 does not hold an advantage.

    Source: Ahmadian et al. 2024, "Back to Basics: Revisiting REINFORCE-Style Optimization for Learning from Human Feedback in
        LLMs" (arXiv 2402.14740), the RLOO estimator of section 2.
        We differ: members that are not live are left out; a single member gets 0, where the paper has no baseline for it;
        there is no division by a deviation, which some implementations add and which gives a million where the others of a
        group agree.
    """
    members = live_rewards(rewards, live, "leave_one_out")
    if is_constant(members, magnitude):
        return np.zeros(len(live), np.float32)
    members, exponent = in_units(members)
    against_others = (members - members.mean()) * (members.size / (members.size - 1))
    return placed(out_of_units(against_others, exponent), live, "leave_one_out")
