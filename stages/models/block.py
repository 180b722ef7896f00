"""One decoder block: the parameters around attention and the feed-forward part. What is attended to, the caller decides.

Axes: B rows, T tokens of a row, W width, N query heads, K key-value heads, D head size.
"""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from stages.models import layers
from stages.models.config import ModelConfig
from stages.models.feed_forward import Experts, FeedForward
from stages.models.linear import Linear, draw_normals

Turn = tuple[Array, Array]
"""Cosine and sine of each position, float32 [B, T, D] each."""


class Block(nnx.Module):
    """Parameters of one layer. Absent parts are ``None``."""

    def __init__(self, config: ModelConfig, layer: int, rngs: nnx.Rngs):
        width, query = config.width, config.num_heads * config.head_size
        pair = config.num_kv_heads * config.head_size
        # Projections back into the residual stream start smaller, so that its variance does not grow with depth (GPT-2, 2.3).
        back = (2 * config.num_layers * query) ** -0.5
        into = width**-0.5
        kernels = draw_normals(
            rngs.params(),
            (((width, query), into), ((width, pair), into), ((width, pair), into), ((query, width), back)),
            config.dtype,
        )
        bias = config.projection_bias
        self.config = config
        self.query = Linear(kernels[0], ("embed", "heads"), bias=bias)
        self.key = Linear(kernels[1], ("embed", "kv_heads"), bias=bias)
        self.value = Linear(kernels[2], ("embed", "kv_heads"), bias=bias)
        self.output = Linear(kernels[3], ("heads", "embed"))
        self.attention_norm_W = norm_scale(config, width)
        self.mlp_norm_W = norm_scale(config, width)
        self.query_norm_D = norm_scale(config, config.head_size) if config.head_norms else None
        self.key_norm_D = norm_scale(config, config.head_size) if config.head_norms else None
        self.after_attention_norm_W = norm_scale(config, width) if config.norms_after else None
        self.after_mlp_norm_W = norm_scale(config, width) if config.norms_after else None
        experts = config.experts if config.has_experts(layer) else None
        self.mlp = FeedForward(config, rngs.params()) if experts is None else Experts(config, experts, rngs.params())

    def project(
        self, x_BTW: Float[Array, "B T W"], turn: Turn
    ) -> tuple[Float[Array, "B T N D"], Float[Array, "B T K D"], Float[Array, "B T K D"]]:
        """Queries, keys and values of the block's input; queries and keys turned."""
        heads = (*x_BTW.shape[:2], -1, self.config.head_size)
        h_BTW = self._norm(x_BTW, self.attention_norm_W)
        query, keys, values = (part(h_BTW).reshape(heads) for part in (self.query, self.key, self.value))
        query, keys = self._norm(query, self.query_norm_D), self._norm(keys, self.key_norm_D)
        return layers.rotate(query, *turn), layers.rotate(keys, *turn), values

    def finish(self, x_BTW: Float[Array, "B T W"], attended_BTND: Float[Array, "B T N D"]) -> Float[Array, "B T W"]:
        """The rest of the block after attention: output projection and feed-forward, both added to the stream."""
        attended = self.output(attended_BTND.reshape((*x_BTW.shape[:2], -1)))
        x_BTW = x_BTW + self._norm(attended, self.after_attention_norm_W)
        return x_BTW + self._norm(self.mlp(self._norm(x_BTW, self.mlp_norm_W)), self.after_mlp_norm_W)

    def _norm(self, x: Array, scale: nnx.Param | None) -> Array:
        """Normalise; without a scale there is no such norm in this model."""
        return x if scale is None else layers.rms_norm(x, scale[...], self.config.norm_epsilon, self.config.norm_offset)


def norm_scale(config: ModelConfig, size: int) -> nnx.Param:
    """The scale of a norm that begins as one."""
    return nnx.Param(jnp.full((size,), 1 - config.norm_offset, jax.dtypes.canonicalize_dtype(config.dtype)), axes=(None,))
