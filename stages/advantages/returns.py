"""What is still earned from each place on: of tokens (``reinforce_pp.py``) and of turns (``turns.py``). Pure NumPy."""

import numpy as np


def discounted_returns(rewards: np.ndarray, discount: float) -> np.ndarray:
    """G_t = r_t + discount * G_{t+1}, float64 [S]; not finite where float64 does not hold it.

    Args:
        rewards: float [S], in order.
        discount: how much less a reward is worth one place later, from 0 to 1.
    """
    rewards = np.asarray(rewards, np.float64)
    if discount == 1.0:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.cumsum(rewards[::-1])[::-1]
    returns, later = np.empty_like(rewards), 0.0
    for place in range(len(rewards) - 1, -1, -1):
        later = float(rewards[place]) + discount * later
        returns[place] = later
    return returns
