"""The feed-forward part of a block: one gated layer, or a mixture of them.

Axes: W width, F hidden size, E experts, M tokens, A (token, expert) pairs that were chosen.
"""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from stages.models.config import ExpertsConfig, ModelConfig
from stages.models.layers import activate
from stages.models.linear import Linear, draw_normals


class FeedForward(nnx.Module):
    """A gated layer. Source: Shazeer 2020, arXiv 2002.05202, equations 5 and 6, without biases."""

    def __init__(self, config: ModelConfig, key: Array):
        width, hidden = config.width, config.mlp_width
        deviations = width**-0.5, (2 * config.num_layers * hidden) ** -0.5
        gate, up, down = draw_normals(
            key,
            (((width, hidden), deviations[0]), ((width, hidden), deviations[0]), ((hidden, width), deviations[1])),
            config.dtype,
        )
        self.activation = config.activation
        self.gate = Linear(gate, ("embed", "mlp"))
        self.up = Linear(up, ("embed", "mlp"))
        self.down = Linear(down, ("mlp", "embed"))

    def __call__(self, x: Float[Array, "... W"]) -> Float[Array, "... W"]:
        """Each vector on its own."""
        return self.down(activate(self.gate(x), self.activation) * self.up(x))


class Experts(nnx.Module):
    """A mixture of gated layers; each token goes through the ones its router ranks first.

    Source: Shazeer et al. 2017, arXiv 1701.06538, without noise and without capacity: no token is dropped. The chosen (token,
    expert) pairs are sorted by expert and run as one grouped matrix product, the platform's own: TPUs skip what no expert was
    chosen for; XLA's CPU backend works it out as a dense product over all experts, exact but as many times slower.
    """

    def __init__(self, config: ModelConfig, experts: ExpertsConfig, key: Array):
        num, width, hidden = experts.num_experts, config.width, experts.width
        deviations = width**-0.5, (2 * config.num_layers * hidden) ** -0.5
        router, gate, up, down = draw_normals(
            key,
            (
                ((width, num), deviations[0]),
                ((num, width, hidden), deviations[0]),
                ((num, width, hidden), deviations[0]),
                ((num, hidden, width), deviations[1]),
            ),
            config.dtype,
        )
        self.activation = config.activation
        self.per_token = experts.per_token
        self.normalised = experts.normalised
        self.router = Linear(router, ("embed", "experts"))
        self.gate_EWF = nnx.Param(gate, axes=("experts", "embed", "mlp"))
        self.up_EWF = nnx.Param(up, axes=("experts", "embed", "mlp"))
        self.down_EFW = nnx.Param(down, axes=("experts", "mlp", "embed"))

    def __call__(self, x: Float[Array, "... W"]) -> Float[Array, "... W"]:
        """Each vector on its own."""
        x_MW = x.reshape(-1, x.shape[-1])
        weights_MA, experts_MA = self.route(x_MW)
        order_A = jnp.argsort(experts_MA.reshape(-1), stable=True)
        tokens_A = order_A // self.per_token
        sizes_E = jnp.bincount(experts_MA.reshape(-1), length=self.gate_EWF.shape[0]).astype(jnp.int32)
        sorted_AW = x_MW[tokens_A]
        gate_AF = jax.lax.ragged_dot(sorted_AW, self.gate_EWF[...], sizes_E)
        up_AF = jax.lax.ragged_dot(sorted_AW, self.up_EWF[...], sizes_E)
        down_AW = jax.lax.ragged_dot(activate(gate_AF, self.activation) * up_AF, self.down_EFW[...], sizes_E)
        # Back in the order (token, rank), so that a token's sum never depends on its neighbours.
        ranked_MAW = jnp.zeros_like(down_AW).at[order_A].set(down_AW, unique_indices=True).reshape(*experts_MA.shape, -1)
        return jnp.sum(ranked_MAW * weights_MA[..., None], axis=1).astype(x.dtype).reshape(x.shape)

    def route(self, x_MW: Float[Array, "M W"]) -> tuple[Float[Array, "M A"], Int[Array, "M A"]]:
        """Weights and numbers of each token's experts, the most likely first."""
        probabilities_ME = jax.nn.softmax(self.router(x_MW).astype(jnp.float32), axis=-1)
        weights_MA, experts_MA = jax.lax.top_k(probabilities_ME, self.per_token)
        if self.normalised:
            weights_MA = weights_MA / jnp.sum(weights_MA, axis=-1, keepdims=True)
        return weights_MA.astype(x_MW.dtype), experts_MA
