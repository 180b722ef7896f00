"""On-policy distillation: a teacher judges every token that the policy sampled. Pure NumPy."""

import numpy as np

from stages.advantages.members import single


def distillation(behaviour: np.ndarray, teacher: np.ndarray) -> np.ndarray:
    """The teacher's log-probability minus the policy's own, at each sampled token.

    It is the negative reverse KL, token by token: a token the teacher would rather not have said is pushed down. There are no
    group statistics and no reward; a group of one is as good as any.

    Args:
        behaviour: float [S]: log-probability of the sampled token under the policy that sampled it.
        teacher: float [S]: the same under the teacher.

    Returns:
        float32 [S]

    Raises:
        ValueError: float32 does not hold one.

    Source: Lu and Thinking Machines Lab 2025, "On-Policy Distillation" (the reverse KL as advantage, with a discount of 0);
        Agarwal et al. 2024, "On-Policy Distillation of Language Models" (GKD, arXiv 2306.13649), with reverse KL and only
        on-policy data.
        We differ: GKD differentiates the divergence over the whole vocabulary, here the sampled token stands for it.
    """
    return single(np.asarray(teacher, np.float64) - np.asarray(behaviour, np.float64), "distillation", "token")
