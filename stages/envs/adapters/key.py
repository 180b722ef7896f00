"""A seed out of an episode's key, for packages that want one integer."""

import numpy as np


def seed_of(key: tuple[int, int, int, int]) -> int:
    """An integer from 0 to 2**31 - 1 that is the same for the same key, and another one for another.

    Args:
        key: (seed, birth, member, retry).
    """
    return int(np.random.SeedSequence(key).generate_state(1)[0] >> 1)
