"""An observation as text, where nobody said what it says: numbers, texts, and what is made of them.

Used by the adapters of environments whose observations are data.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

MAX_NUMBERS = 64


def spoken(observation: Any) -> str:
    """An observation as text: one line for each field of a mapping, a comma between the parts of a list.

    Raises:
        ValueError: it holds an array of over 64 numbers, as an image does, or something that is no number.
    """
    if isinstance(observation, str):
        return observation
    if isinstance(observation, Mapping):
        return "\n".join(f"{name}: {spoken(part)}" for name, part in observation.items())
    if observation is None or isinstance(observation, bool | np.bool_):
        return str(observation).lower()
    if isinstance(observation, tuple | list):
        return ", ".join(spoken(part) for part in observation)
    numbers = np.asarray(observation)
    if numbers.size > MAX_NUMBERS or numbers.dtype.kind not in "biuf":
        raise ValueError(
            f"expected an observation of texts and at most {MAX_NUMBERS} numbers; got {numbers.dtype} {numbers.shape}, in "
            "spoken; say what it shows with describe="
        )
    return ", ".join(f"{number:.4g}" if numbers.dtype.kind == "f" else str(int(number)) for number in numbers.ravel())
