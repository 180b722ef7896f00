"""REINFORCE++: the return to go at each token, and its normalisation over a whole step. Pure NumPy.

Two functions, since they run in two places: ``returns_to_go`` where one episode is known, ``whiten`` in the trainer, which
alone knows all tokens of a step.
"""

import numpy as np

from stages.advantages.members import in_units, is_constant, single
from stages.advantages.returns import discounted_returns


def returns_to_go(rewards: np.ndarray, discount: float = 1.0) -> np.ndarray:
    """What an episode still earns from each token on.

    Args:
        rewards: float [S]: reward at each sampled token, in order; the penalty for the distance to a reference taken off there.
        discount: how much less a reward is worth one token later, from 0 to 1.

    Returns:
        float32 [S]

    Raises:
        ValueError: float32 does not hold one.

    Source: Hu et al. 2025, "REINFORCE++" (arXiv 2501.03262), the advantage r(x, y) - beta * sum of KL(i) from t on, which is
        this with ``discount=1``, the outcome at the last token and k1 as KL.
        We differ: a penalty at token t counts at t and before, as in the equation, where some implementations shift it by one.
    """
    return single(discounted_returns(rewards, discount), "returns_to_go", "token")


def whiten(values: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Values minus their mean over the mask, over their standard deviation there.

    Values that are all one up to the rounding of float32, a single one and none: all zeros.

    Args:
        values: float, any shape; entries outside the mask are ignored and may be NaN.
        mask: bool, the same shape: tokens that are trained.

    Returns:
        float32, the same shape; 0 outside the mask.

    Raises:
        ValueError: shapes differ, or a value in the mask is not finite.

    Source: Hu et al. 2025, "REINFORCE++" (arXiv 2501.03262), the normalisation over the global batch.
        We differ: no epsilon; float64 inside; the population deviation; the batch is all trained tokens of one optimizer step.
    """
    values, mask = np.asarray(values), np.asarray(mask, bool)
    if values.shape != mask.shape:
        raise ValueError(
            f"whiten: expected values and mask of one shape, got {values.shape} and {mask.shape}; give the mask of their tokens"
        )
    chosen = values[mask].astype(np.float64)
    if not np.isfinite(chosen).all():
        raise ValueError("whiten: expected finite values in the mask, got NaN or infinity; leave such tokens out of the mask")
    white = np.zeros(values.shape, np.float32)
    if not is_constant(chosen):
        units, _ = in_units(chosen)
        white[mask] = (units - units.mean()) / units.std()
    return white
