"""The decoder as a Flax NNX module: the packed forward pass for training, the cached one for sampling.

It knows nothing of losses, sampling or slots' owners. Each layer has parameters and cache of its own and the layers are written
out one after another: a loop over stacked layers compiles once whatever the depth, but slicing a layer out copies its weights,
which is a third of a decode step and on the way of every weight swap.

Axes: B rows, T tokens of a row, V vocabulary, W width; R rows of a cached step, C new tokens of a row.
"""

import functools

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from stages.models import layers
from stages.models.attention import cached_attention, packed_attention
from stages.models.block import Block, Turn, norm_scale
from stages.models.cache import Cache, write
from stages.models.config import ModelConfig
from stages.models.linear import draw_normals
from stages.models.logprobs import Head
from stages.models.mesh import spread_rows, whole_rows


class Transformer(nnx.Module):
    """A decoder of the llama line, see ``ModelConfig``.

    ``graphdef, parameters = nnx.split(model, nnx.Param)`` gives all of its state; inside a jitted function
    ``nnx.merge(graphdef, parameters)`` costs nothing after tracing.
    """

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        self.config = config
        table = (((config.vocab_size, config.width), config.width**-0.5),)
        self.embedding_VW = nnx.Param(*draw_normals(rngs.params(), table, config.dtype), axes=("vocab", "embed"))
        self.blocks = nnx.List([Block(config, layer, rngs) for layer in range(config.num_layers)])
        self.final_norm_W = norm_scale(config, config.width)
        if not config.tie_embeddings:
            self.unembedding_VW = nnx.Param(*draw_normals(rngs.params(), table, config.dtype), axes=("vocab", "embed"))

    def __call__(
        self, ids_BT: Int[Array, "B T"], positions_BT: Int[Array, "B T"], segments_BT: Int[Array, "B T"]
    ) -> Float[Array, "B T V"]:
        """Logits of the token after each token. See ``hidden`` for the arguments."""
        return self.logits(self.hidden(ids_BT, positions_BT, segments_BT))

    def hidden(
        self,
        ids_BT: Int[Array, "B T"],
        positions_BT: Int[Array, "B T"],
        segments_BT: Int[Array, "B T"],
        remat: bool = False,
    ) -> Float[Array, "B T W"]:
        """Normalised final vectors of packed rows.

        Args:
            ids_BT: token ids; padding may hold any id of the vocabulary.
            positions_BT: position within the segment, from 0.
            segments_BT: a token attends to tokens of its own segment at or before it in the row. 0 is padding: it sees only
                padding, and its outputs are finite but mean nothing.
            remat: whether a gradient works out the inside of each block again, and keeps only what flows between blocks.

        Returns:
            [B, T, W] in the model's dtype.
        """
        turns = self._turns(positions_BT)
        x_BTW = spread_rows(self._embed(ids_BT))
        for layer in range(len(self.blocks)):
            run = functools.partial(self._block, layer)
            x_BTW = (jax.checkpoint(run) if remat else run)(x_BTW, turns, segments_BT)
        return self._final(x_BTW)

    def _block(self, layer: int, x_BTW: Array, turns: tuple[Turn, Turn], segments_BT: Array) -> Array:
        config, block = self.config, self.blocks[layer]
        window = config.window(layer)
        attended = packed_attention(
            *block.project(x_BTW, turns[window is not None]),
            segments_BT,
            scale=config.score_scale,
            window=window,
            cap=config.attention_cap,
        )
        return spread_rows(block.finish(x_BTW, attended))

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
            slots_R: the slot of each row. Rows of one slot hold different positions; each sees what the others store, if that
                is before it. ``None``: row r is slot r, and R is the number of slots; no slot is gathered then.

        Returns:
            Normalised final vectors [R, C, W], without meaning past a row's length, and the cache.
        """
        config, length = self.config, cache.length
        offsets_C = jnp.arange(ids_RC.shape[1], dtype=jnp.int32)
        positions_RC = starts_R[:, None] + offsets_C[None]
        stored_at_RC = jnp.where(offsets_C[None] < lengths_R[:, None], positions_RC, length)
        behind_RCT = positions_RC[:, :, None] - jnp.arange(length, dtype=jnp.int32)[None, None]
        rows_R = jnp.arange(ids_RC.shape[0], dtype=jnp.int32) if slots_R is None else slots_R
        turns = self._turns(positions_RC)
        x_RCW, written = self._embed(ids_RC), []
        for layer, (block, old) in enumerate(zip(self.blocks, cache.layers, strict=True)):
            window = config.window(layer)
            query, keys, values = block.project(x_RCW, turns[window is not None])
            new = write(old, keys, values, rows_R, stored_at_RC)
            allowed_RCT = behind_RCT >= 0 if window is None else (behind_RCT >= 0) & (behind_RCT < window)
            seen = new if slots_R is None else [part[slots_R] for part in new]
            attended = cached_attention(query, *seen, allowed_RCT, scale=config.score_scale, cap=config.attention_cap)
            x_RCW = block.finish(x_RCW, attended)
            written.append(new)
        return self._final(x_RCW), Cache(tuple(written))

    @property
    def head(self) -> Head:
        """What turns final vectors into logits."""
        projection_VW = self.embedding_VW if self.config.tie_embeddings else self.unembedding_VW
        return Head(projection_VW[...], self.config.logit_cap)

    def logits(self, hidden: Float[Array, "... W"]) -> Float[Array, "... V"]:
        """Scores of the next token, float32."""
        projection_VW, cap = self.head
        return layers.soft_cap(jnp.matmul(hidden, projection_VW.T, preferred_element_type=jnp.float32), cap)

    def _embed(self, ids_BT: Array) -> Array:
        x_BTW = jnp.take(whole_rows(self.embedding_VW[...]), ids_BT, axis=0, mode="clip")
        return x_BTW * jnp.asarray(self.config.width**0.5, x_BTW.dtype) if self.config.embedding_scale else x_BTW

    def _final(self, x_BTW: Array) -> Array:
        return layers.rms_norm(x_BTW, self.final_norm_W[...], self.config.norm_epsilon, self.config.norm_offset)

    def _turns(self, positions_BT: Array) -> tuple[Turn, Turn]:
        """How positions are turned in layers that see everything, and in windowed ones."""
        config = self.config
        whole = layers.rotary_angles(positions_BT, config.head_size, config.rotary)
        if config.window_rotary is None:
            return whole, whole
        return whole, layers.rotary_angles(positions_BT, config.head_size, config.window_rotary)
