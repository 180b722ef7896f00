"""The parts of a decoder block as pure functions: arrays in, arrays out. No parameters live here; block.py owns them.

Norms and angles are computed in float32 and rounded once.

Axes: B rows, T tokens of a row, N heads, D head size, W width. ``...`` stands for any leading axes.
"""

import math
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from stages.models.config import RotaryConfig


def rms_norm(x: Float[Array, "... W"], scale_W: Float[Array, " W"], epsilon: float, offset: int = 0) -> Float[Array, "... W"]:
    """Scale each vector to a root mean square of one, then by ``scale_W + offset``.

    Source: Zhang and Sennrich 2019, arXiv 1910.07467, equation 4; epsilon inside the root, as llama has it. We differ from
    llama in bfloat16: it rounds before the scale, we after.
    """
    exact = x.astype(jnp.float32)
    mean_square = jnp.mean(jnp.square(exact), axis=-1, keepdims=True)
    scale = scale_W.astype(jnp.float32) + offset
    return (exact * jax.lax.rsqrt(mean_square + epsilon) * jnp.broadcast_to(scale, x.shape)).astype(x.dtype)


def rotary_frequencies(config: RotaryConfig, head_size: int) -> Float[Array, " D/2"]:
    """Radians a position is turned by, for each pair of a head.

    Source: Su et al. 2021, arXiv 2104.09864, section 3.4.2. Stretched: Chen et al. 2023, arXiv 2306.15595, for ``linear``;
    the rope utilities of transformers for ``llama3``.
    """
    exponents = jnp.arange(0, head_size, 2, dtype=jnp.float32) / head_size
    frequencies = jnp.power(jnp.float32(config.base), -exponents)
    if config.scaling == "none":
        return frequencies
    stretched = frequencies / config.factor
    if config.scaling == "linear":
        return stretched
    waves = config.original_context * frequencies / (2 * math.pi)
    low, high = config.low_frequency_factor, config.high_frequency_factor
    share = jnp.clip((waves - low) / (high - low), 0.0, 1.0)
    return (1.0 - share) * stretched + share * frequencies


def rotary_angles(
    positions: Int[Array, "..."], head_size: int, config: RotaryConfig
) -> tuple[Float[Array, "... D"], Float[Array, "... D"]]:
    """Cosine and sine by which ``rotate`` turns each position; computed once for all layers.

    The halves are paired (i, i + D/2) as in the weights published on the hub, not (2i, 2i + 1) as in the paper; the two differ
    by a fixed permutation of the rows of q and k.
    """
    frequencies = rotary_frequencies(config, head_size)
    angles = positions.astype(jnp.float32)[..., None] * frequencies.reshape((1,) * positions.ndim + (-1,))
    angles = jnp.concatenate([angles, angles], axis=-1)
    return jnp.cos(angles), jnp.sin(angles)


def rotate(x: Float[Array, "B T N D"], cosine: Float[Array, "B T D"], sine: Float[Array, "B T D"]) -> Float[Array, "B T N D"]:
    """Turn each pair (i, i + D/2) of every head by the angle of its position."""
    exact = x.astype(jnp.float32)
    first, second = jnp.split(exact, 2, axis=-1)
    turned = jnp.concatenate([-second, first], axis=-1)
    return (exact * cosine[:, :, None, :] + turned * sine[:, :, None, :]).astype(x.dtype)


def activate(x: Float[Array, "..."], name: Literal["silu", "gelu_tanh"]) -> Float[Array, "..."]:
    """What the gate of a feed-forward part goes through.

    Source: Shazeer 2020, arXiv 2002.05202; gelu by its tanh approximation, as Gemma has it.
    """
    return jax.nn.silu(x) if name == "silu" else jax.nn.gelu(x, approximate=True)


def soft_cap(x: Float[Array, "..."], cap: float | None) -> Float[Array, "..."]:
    """Squash to within ``cap``; ``None`` leaves x as it is. Source: Gemma Team 2024, arXiv 2408.00118, section 2."""
    return x if cap is None else cap * jnp.tanh(x / cap)
