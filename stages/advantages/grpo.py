"""Group-relative advantages: how much better a member did than its siblings. Pure NumPy, one group at a time.

There is no other way to call it: statistics cannot cross groups, whatever their sizes.
"""

import numpy as np

from stages.advantages.members import in_units, is_constant, live_rewards, out_of_units, placed


def group_advantages(rewards: np.ndarray, live: np.ndarray, scale: bool = True, magnitude: float = 0.0) -> np.ndarray:
    """Reward minus the mean of the live members, over their standard deviation.

    A group of one live member, of none, and a constant group (up to the rounding of float32) carry no signal: all zeros. So no
    small number is added to the deviation, and with n live members no advantage exceeds sqrt(n - 1) in magnitude.

    Args:
        rewards: float [n]; entries of members that are not live are ignored and may be NaN.
        live: bool [n]: members that take part: scored, not failed, with at least one sampled token.
        scale: divide by the standard deviation.
        magnitude: see ``is_constant``.

    Returns:
        float32 [n]; 0 where not live.

    Raises:
        ValueError: shapes differ, a live reward is not finite, or float32 does not hold an advantage.

    Source: Shao et al. 2024, "DeepSeekMath", section 4.1.2 (outcome supervision), equation for A_i.
        We differ: the population deviation (the paper leaves it open; several implementations take the sample deviation, NaN
        for one member); no epsilon; float64 inside; members that are not live are left out of mean and deviation.
        ``scale=False`` is Liu et al. 2025, "Understanding R1-Zero-Like Training" (Dr. GRPO), equation 3.
    """
    members = live_rewards(rewards, live, "group_advantages")
    if is_constant(members, magnitude):
        return np.zeros(len(live), np.float32)
    members, exponent = in_units(members)
    centred = members - members.mean()
    return placed(centred / members.std() if scale else out_of_units(centred, exponent), live, "group_advantages")
