"""A projection with what may hang on it: a bias, and a LoRA adapter. Drawing of first parameters is here too.

Axes: I input size, O output size, R rank of the adapter.
"""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float


class Linear(nnx.Module):
    """``x @ kernel + bias``, and ``scale * (x @ down) @ up`` where there is an adapter.

    Args:
        kernel_IO: the kernel.
        axes: logical names of its two axes, see ``sharding.py``.
        bias: whether there is one; it begins at zero.
    """

    def __init__(self, kernel_IO: Float[Array, "I O"], axes: tuple[str, str], *, bias: bool = False):
        self.kernel_IO = nnx.Param(kernel_IO, axes=axes)
        self.bias_O = nnx.Param(jnp.zeros(kernel_IO.shape[1:], kernel_IO.dtype), axes=axes[1:]) if bias else None
        self.lora_down_IR: nnx.LoRAParam | None = nnx.data(None)
        self.lora_up_RO: nnx.LoRAParam | None = nnx.data(None)
        self.lora_scale = 0.0

    def __call__(self, x: Float[Array, "... I"]) -> Float[Array, "... O"]:
        """Project the last axis."""
        y = x @ self.kernel_IO[...]
        if self.bias_O is not None:
            y = y + jnp.broadcast_to(self.bias_O[...], y.shape)
        if self.lora_down_IR is not None and self.lora_up_RO is not None:
            y = y + self.lora_scale * ((x @ self.lora_down_IR[...]) @ self.lora_up_RO[...])
        return y


@functools.partial(jax.jit, static_argnums=(1, 2))
def draw_normals(key: Array, draws: tuple[tuple[tuple[int, ...], float], ...], dtype: str) -> list[Array]:
    """Normal draws of the given shapes and deviations, cut from one vector: a draw for each shape takes seconds to compile."""
    ends = list(itertools.accumulate(math.prod(shape) for shape, _ in draws))
    parts = jnp.split(jax.random.normal(key, (ends[-1],), jnp.float32), ends[:-1])
    return [(deviation * part.reshape(shape)).astype(dtype) for part, (shape, deviation) in zip(parts, draws, strict=True)]
