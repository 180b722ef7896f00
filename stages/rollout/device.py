"""The engine's two compiled programs, the cache they pass on, and the parameters they read. Engine's thread only.

Both programs are compiled ahead of time for one shape each: a call with another shape is an error, never a compilation. Engines
of one shape in one process (training and evaluation) share them.

Axes: S slots, R rows of a prefill step, C tokens of a row.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import SingleDeviceSharding
from jaxtyping import Array

from stages.models.cache import Cache, empty_cache
from stages.models.config import ModelConfig
from stages.models.transformer import Transformer
from stages.rollout.config import EngineConfig
from stages.rollout.sampling import sample_tokens
from stages.rollout.schedule import Decode, ReadIn

Merge = Callable[[list[Array]], Transformer]


class Device:
    """A model where its parameters are. They are shared with whoever made them and never donated; the cache is ours."""

    def __init__(self, model: Transformer, config: EngineConfig):
        self.compilations = 0
        self._config = config
        self._model = model

    @property
    def parameters(self) -> nnx.State:
        """What is in force, as a tree. Of an open device."""
        return jax.tree.unflatten(self._treedef, self._leaves)

    def open(self) -> None:
        """Take the model's parameters as they are now, make the cache and compile both programs."""
        graphdef, parameters = nnx.split(self._model, nnx.Param)
        self._leaves, self._treedef = jax.tree.flatten(parameters)
        self._sharding = SingleDeviceSharding(min(self._leaves[0].devices(), key=lambda device: device.id))
        self.load(self._leaves)
        slots, length = self._config.slots, self._config.context_length
        self._cache = jax.device_put(empty_cache(self._model.config, slots, length), self._sharding)
        rows_chunk = (self._config.prefill_rows, self._config.prefill_chunk)
        programs = _compile(graphdef, self._treedef, self._model.config, slots, length, rows_chunk, self._sharding)
        self.compilations = len(programs)
        self._read_in, self._decode = programs

    def close(self) -> None:
        """Let go of the cache."""
        del self._cache

    def load(self, leaves: list[Array]) -> None:
        """Put other parameters in force; the caller has checked that they match."""
        self._leaves = jax.device_put(leaves, self._sharding)

    def read_in(self, work: ReadIn) -> None:
        """Cache the keys and values of context tokens. Returns when the device is done, so that spans show its time."""
        self._cache = jax.block_until_ready(self._read_in(self._leaves, self._cache, work))

    def decode(self, work: Decode) -> tuple[np.ndarray, np.ndarray]:
        """Sample a token for every slot: int32 [S] ids and float32 [S] log-probabilities; slots of length 0 hold noise."""
        ids_S, logprobs_S, self._cache = self._decode(self._leaves, self._cache, work)
        return np.asarray(ids_S), np.asarray(logprobs_S)


def _read_in(merge: Merge, leaves: list[Array], cache: Cache, work: ReadIn) -> Cache:
    return merge(leaves).extend(cache, *work)[1]


def _decode(merge: Merge, leaves: list[Array], cache: Cache, work: Decode) -> tuple[Array, Array, Cache]:
    model = merge(leaves)
    hidden_S1W, cache = model.extend(cache, work.ids_S[:, None], work.positions_S, work.lengths_S)
    logits_SV = model.logits(hidden_S1W[:, 0])
    return *sample_tokens(logits_SV, work.temperature_S, work.keys_S2, work.positions_S + 1), cache


@functools.lru_cache(maxsize=8)
def _compile(
    graphdef: nnx.GraphDef[Transformer],
    treedef: jax.tree_util.PyTreeDef,
    model_config: ModelConfig,
    slots: int,
    length: int,
    rows_chunk: tuple[int, int],
    sharding: SingleDeviceSharding,
) -> tuple[Any, Any]:
    """The programs that read in and decode."""

    def merge(leaves: list[Array]) -> Transformer:
        return nnx.merge(graphdef, jax.tree.unflatten(treedef, leaves))

    model = nnx.eval_shape(lambda: Transformer(model_config, nnx.Rngs(0)))
    leaves = jax.tree.leaves(nnx.split(model, nnx.Param)[1])
    cache = jax.eval_shape(lambda: empty_cache(model_config, slots, length))
    by_slot, by_row = np.zeros(slots, np.int32), np.zeros(rows_chunk[:1], np.int32)
    read_in = ReadIn(np.zeros(rows_chunk, np.int32), by_row, by_row, by_row)
    keys_S2 = np.zeros((slots, 2), np.uint32)
    decode = Decode(by_slot, by_slot, by_slot, by_slot.astype(np.float32), keys_S2)

    def compiled(program: Callable[..., Any], work: ReadIn | Decode) -> Any:
        jitted = jax.jit(functools.partial(program, merge), donate_argnums=1, in_shardings=sharding)
        return jitted.lower(leaves, cache, work).compile()

    return compiled(_read_in, read_in), compiled(_decode, decode)
