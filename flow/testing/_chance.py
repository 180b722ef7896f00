"""Chance as a pure function of a key, so that what happens to an item depends on who it is and never on when it came.

A generator shared by all would be drawn from in the order of the schedule, and no oracle could say what an item meets. Made
for speed: a generator of its own for each key would cost twenty times as much.
"""

import math
import zlib

_MASK = 2**64 - 1


def chance(*key: object) -> float:
    """Give a number in [0, 1) that only the key decides.

    Args:
        key: integers, floats and tuples of them, whose hashes are the same in every process. Write a name with ``number``.
    """
    # The hash of a tuple is not even enough by itself. Source: Steele et al. 2014, "Fast splittable pseudorandom number
    # generators", the finaliser of SplitMix64 (variant 13 of Stafford).
    x = hash(key) & _MASK
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _MASK
    return ((x ^ x >> 31) >> 11) * 2.0**-53


def number(name: str) -> int:
    """Write a name as a number that is the same in every process, which the hash of a string is not."""
    return zlib.crc32(name.encode())


def exponential(share: float, mean: float) -> float:
    """Give the exponential duration with this mean below which this share of all lie."""
    return -mean * math.log1p(-share)


def pareto(share: float, least: float, tail: float = 1.5) -> float:
    """Give the Pareto duration below which this share of all lie; with a tail of 1.5 the variance is infinite."""
    return least * (1.0 - share) ** (-1.0 / tail)
