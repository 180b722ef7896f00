"""Random target tokens for the losses: stale, masked, several sequences in a row."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest

from stages.losses.tokens import Tokens

ROWS, LENGTH = 3, 9
MakeTokens = Callable[..., Tokens]


@pytest.fixture
def make_tokens() -> MakeTokens:
    """``make_tokens(seed, dtype)``: three rows, of three sequences, of one with padding behind it, and of two."""

    def make(seed: int, dtype: type = np.float32) -> Tokens:
        random = np.random.default_rng(seed)
        shape = ROWS, LENGTH
        segments = np.array([[1, 1, 1, 2, 2, 2, 2, 3, 3], [1, 1, 1, 1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 2, 2, 2, 2, 2]], np.int32)
        behaviour = -random.exponential(1.0, shape)
        floats = {
            "logprobs": behaviour + 0.5 * random.normal(size=shape),
            "entropy": random.uniform(0, 2, shape),
            "weights": random.uniform(0.1, 1.0, shape),
            "advantages": random.normal(size=shape),
            "behaviour": behaviour,
            "proximal": behaviour + 0.4 * random.normal(size=shape),
            "reference": behaviour + 0.6 * random.normal(size=shape),
            "values": random.normal(size=shape),
            "old_values": random.normal(size=shape),
            "returns": random.normal(size=shape),
        }
        mask = (random.random(shape) < 0.7) & (segments > 0)
        return Tokens(
            mask=jnp.asarray(mask),
            segments=jnp.asarray(segments),
            **{name: jnp.asarray(array.astype(dtype)) for name, array in floats.items()},
        )

    return make
