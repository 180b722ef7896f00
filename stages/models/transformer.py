"""The decoder as a Flax NNX module: parameters, the packed forward pass for training, the cached one for sampling.

It knows nothing of losses, sampling or slots' owners. Parameters of all layers are stacked on a leading axis and the layers
run in one ``lax.scan``: one block is compiled whatever the depth. (Measured on CPU at 30 layers: 0.7 s against 5 s to compile.)

Axes: B rows, T tokens of a row, V vocabulary, W width, L layers, Q all query heads side by side, P all key (value) heads side
by side, F feed-forward width; R rows of a cached step, C new tokens of a row.
"""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from stages.models import layers
from stages.models.cache import Cache, write
from stages.models.config import ModelConfig

_Block = dict[str, Array]


class Blocks(nnx.Module):
    """Parameters of all decoder blocks, stacked: the leading axis is the layer."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        num, width, hidden = config.num_layers, config.width, config.mlp_width
        query, pair = config.num_heads * config.head_size, config.num_kv_heads * config.head_size
        # Projections back into the residual stream start smaller, so that its variance does not grow with depth (GPT-2, 2.3).
        back = (2 * num) ** -0.5
        into, out = width**-0.5, back * query**-0.5
        query_LWQ, key_LWP, value_LWP, output_LQW, gate_LWF, up_LWF, down_LFW = _normals(
            rngs.params(),
            (
                ((num, width, query), into), ((num, width, pair), into), ((num, width, pair), into), ((num, query, width), out),
                ((num, width, hidden), into), ((num, width, hidden), into), ((num, hidden, width), back * hidden**-0.5),
            ),
        )  # fmt: skip
        self.attention_norm_LW = nnx.Param(jnp.ones((num, width), jnp.float32))
        self.query_LWQ = nnx.Param(query_LWQ)
        self.key_LWP = nnx.Param(key_LWP)
        self.value_LWP = nnx.Param(value_LWP)
        self.output_LQW = nnx.Param(output_LQW)
        self.mlp_norm_LW = nnx.Param(jnp.ones((num, width), jnp.float32))
        self.gate_LWF = nnx.Param(gate_LWF)
        self.up_LWF = nnx.Param(up_LWF)
        self.down_LFW = nnx.Param(down_LFW)

    def stacked(self) -> _Block:
        """The arrays by name without the axis letters, as ``lax.scan`` slices them."""
        named = {name.rsplit("_", 1)[0]: value for name, value in vars(self).items() if isinstance(value, nnx.Param)}
        return {name: parameter[...] for name, parameter in named.items()}


class Transformer(nnx.Module):
    """A llama-family decoder in float32.

    ``graphdef, parameters = nnx.split(model, nnx.Param)`` gives all of its state; inside a jitted function
    ``nnx.merge(graphdef, parameters)`` costs nothing after tracing.
    """

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        self.config = config
        table = ((config.vocab_size, config.width), config.width**-0.5)
        self.embedding_VW = nnx.Param(*_normals(rngs.params(), (table,)))
        self.blocks = Blocks(config, rngs)
        self.final_norm_W = nnx.Param(jnp.ones((config.width,), jnp.float32))
        if not config.tie_embeddings:
            self.unembedding_VW = nnx.Param(*_normals(rngs.params(), (table,)))

    def __call__(
        self, ids_BT: Int[Array, "B T"], positions_BT: Int[Array, "B T"], segments_BT: Int[Array, "B T"]
    ) -> Float[Array, "B T V"]:
        """Logits of the token after each token. See ``hidden`` for the arguments."""
        return self.logits(self.hidden(ids_BT, positions_BT, segments_BT))

    def hidden(
        self, ids_BT: Int[Array, "B T"], positions_BT: Int[Array, "B T"], segments_BT: Int[Array, "B T"]
    ) -> Float[Array, "B T W"]:
        """Normalised final vectors of packed rows.

        Args:
            ids_BT: token ids; padding may hold any id of the vocabulary.
            positions_BT: position within the segment, from 0.
            segments_BT: a token attends to tokens of its own segment at or before it in the row. 0 is padding: it sees only
                padding, and its outputs are finite but mean nothing.

        Returns:
            float32 [B, T, W].
        """
        config = self.config
        length = ids_BT.shape[1]
        causal_TT = jnp.tril(jnp.ones((length, length), bool))
        allowed_BTT = (segments_BT[:, :, None] == segments_BT[:, None, :]) & causal_TT[None]
        turn = layers.rotary_angles(positions_BT, config.head_size, config.rope_base)

        def block(x_BTW: Array, parameters: _Block) -> tuple[Array, None]:
            query, keys, values = self._project(x_BTW, parameters, turn)
            return self._finish(x_BTW, layers.attend(query, layers.Source(keys, values, allowed_BTT)), parameters), None

        x_BTW, _ = jax.lax.scan(block, self._embed(ids_BT), self.blocks.stacked())
        return layers.rms_norm(x_BTW, self.final_norm_W[...], config.norm_epsilon)

    def extend(
        self,
        cache: Cache,
        ids_RC: Int[Array, "R C"],
        starts_R: Int[Array, " R"],
        lengths_R: Int[Array, " R"],
        slots_R: Int[Array, " R"] | None = None,
    ) -> tuple[Float[Array, "R C W"], Cache]:
        """Run new tokens after what the cache holds, and store their keys and values.

        Args:
            cache: consumed; donate it.
            ids_RC: the new tokens of each row, left-aligned.
            starts_R: tokens of the row's slot that are in the cache and are attended to; the first new token has this position.
            lengths_R: how many of the row's C tokens are real. The others are neither stored nor attended to.
            slots_R: the slot of each row, no slot twice among rows with a length above 0. ``None``: row r is slot r, and R is
                the number of slots; no slot is gathered then.

        Returns:
            Normalised final vectors [R, C, W], without meaning past a row's length, and the cache.
        """
        config = self.config
        rows, new = ids_RC.shape
        offsets_C = jnp.arange(new, dtype=jnp.int32)
        positions_RC = starts_R[:, None] + offsets_C[None]
        turn = layers.rotary_angles(positions_RC, config.head_size, config.rope_base)
        before_RT = jnp.arange(cache.length, dtype=jnp.int32)[None] < starts_R[:, None]
        cached_RCT = jnp.broadcast_to(before_RT[:, None], (rows, new, cache.length))
        causal_RCC = jnp.broadcast_to(jnp.tril(jnp.ones((new, new), bool))[None], (rows, new, new))
        old = cache if slots_R is None else Cache(cache.keys_LSKDT[:, slots_R], cache.values_LSKTD[:, slots_R])

        def block(x_RCW: Array, layer: tuple[_Block, Array, Array]) -> tuple[Array, tuple[Array, Array]]:
            parameters, old_keys, old_values = layer
            query, keys, values = self._project(x_RCW, parameters, turn)
            cached = layers.Source(old_keys, old_values, cached_RCT)
            attended = layers.attend(query, cached, layers.Source(keys, values, causal_RCC))
            return self._finish(x_RCW, attended, parameters), (keys, values)

        x_RCW, (keys, values) = jax.lax.scan(block, self._embed(ids_RC), (self.blocks.stacked(), *old))
        stored_at_RC = jnp.where(offsets_C[None] < lengths_R[:, None], positions_RC, cache.length)
        slots_R = jnp.arange(rows, dtype=jnp.int32) if slots_R is None else slots_R
        cache = write(cache, keys, values, slots_R, stored_at_RC)
        return layers.rms_norm(x_RCW, self.final_norm_W[...], config.norm_epsilon), cache

    def logits(self, hidden: Float[Array, "... W"]) -> Float[Array, "... V"]:
        """Scores of the next token."""
        projection_VW = self.embedding_VW if self.config.tie_embeddings else self.unembedding_VW
        return hidden @ projection_VW[...].T

    def _embed(self, ids_BT: Array) -> Array:
        return jnp.take(self.embedding_VW[...], ids_BT, axis=0, mode="clip")

    def _project(self, x_BTW: Array, parameters: _Block, turn: tuple[Array, Array]) -> tuple[Array, Array, Array]:
        """Queries [B, K, G, T, D], keys [B, K, D, T] and values [B, K, T, D] of one block."""
        config = self.config
        heads = (*x_BTW.shape[:2], -1, config.head_size)
        h_BTW = layers.rms_norm(x_BTW, parameters["attention_norm"], config.norm_epsilon)
        query = layers.rotate((h_BTW @ parameters["query"]).reshape(heads), *turn)
        keys = layers.rotate((h_BTW @ parameters["key"]).reshape(heads), *turn)
        values = (h_BTW @ parameters["value"]).reshape(heads)
        grouped = (*heads[:2], config.num_kv_heads, -1, config.head_size)
        return jnp.moveaxis(query.reshape(grouped), 1, 3), jnp.moveaxis(keys, 1, 3), jnp.swapaxes(values, 1, 2)

    def _finish(self, x_BTW: Array, attended: Array, parameters: _Block) -> Array:
        """The rest of a block after attention: output projection and feed-forward, both added to the stream."""
        attended = jnp.moveaxis(attended, 3, 1)
        x_BTW = x_BTW + attended.reshape((*x_BTW.shape[:2], -1)) @ parameters["output"]
        h_BTW = layers.rms_norm(x_BTW, parameters["mlp_norm"], self.config.norm_epsilon)
        return x_BTW + layers.swiglu(h_BTW, parameters["gate"], parameters["up"], parameters["down"])


@functools.partial(jax.jit, static_argnums=1)
def _normals(key: Array, draws: tuple[tuple[tuple[int, ...], float], ...]) -> list[Array]:
    """Normal draws of the given shapes and deviations, cut from one vector: a draw for each shape takes seconds to compile."""
    ends = list(itertools.accumulate(math.prod(shape) for shape, _ in draws))
    parts = jnp.split(jax.random.normal(key, (ends[-1],), jnp.float32), ends[:-1])
    return [deviation * part.reshape(shape) for part, (shape, deviation) in zip(parts, draws, strict=True)]
