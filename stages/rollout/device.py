"""The engine's two compiled programs, the cache they pass on, and the parameters they read. Engine's thread only.

Both programs are compiled ahead of time for one shape each: a call with another shape is an error, never a compilation.

Axes: S slots, R rows of a prefill step, C tokens of a row.
"""

import jax
import numpy as np
from flax import nnx
from jax.sharding import SingleDeviceSharding
from jaxtyping import Array

from stages.models.cache import Cache, empty_cache
from stages.models.transformer import Transformer
from stages.rollout.config import EngineConfig
from stages.rollout.sampling import sample_tokens
from stages.rollout.schedule import Decode, ReadIn


class Device:
    """A model where its parameters are. They are shared with whoever made them and never donated; the cache is ours."""

    def __init__(self, model: Transformer, config: EngineConfig):
        self.compilations = 0
        self._config = config
        self._model_config = model.config
        self._graphdef, parameters = nnx.split(model, nnx.Param)
        self._leaves, self._treedef = jax.tree.flatten(parameters)
        self._sharding = SingleDeviceSharding(min(self._leaves[0].devices(), key=lambda device: device.id))

    @property
    def parameters(self) -> nnx.State:
        """What is in force, as a tree."""
        return jax.tree.unflatten(self._treedef, self._leaves)

    def open(self) -> None:
        """Make the cache and compile both programs."""
        slots, rows, chunk = self._config.slots, self._config.prefill_rows, self._config.prefill_chunk
        self.load(self._leaves)
        self._cache = jax.device_put(empty_cache(self._model_config, slots, self._config.context_length), self._sharding)
        by_slot, by_row = np.zeros(slots, np.int32), np.zeros(rows, np.int32)
        read_in = ReadIn(np.zeros((rows, chunk), np.int32), by_row, by_row, by_row)
        decode = Decode(by_slot, by_slot, by_slot, np.zeros(slots, np.float32), np.zeros((slots, 2), np.uint32))
        self._run_read_in = self._compile(self._read_in, read_in)
        self._run_decode = self._compile(self._decode, decode)

    def close(self) -> None:
        """Let go of the cache and the programs."""
        del self._cache, self._run_read_in, self._run_decode

    def load(self, leaves: list[Array]) -> None:
        """Put other parameters in force; the caller has checked that they match."""
        self._leaves = jax.device_put(leaves, self._sharding)

    def read_in(self, work: ReadIn) -> None:
        """Cache the keys and values of context tokens. Returns when the device is done, so that spans show its time."""
        self._cache = jax.block_until_ready(self._run_read_in(self._leaves, self._cache, work))

    def decode(self, work: Decode) -> tuple[np.ndarray, np.ndarray]:
        """Sample a token for every slot: int32 [S] ids and float32 [S] log-probabilities; slots of length 0 hold noise."""
        ids_S, logprobs_S, self._cache = self._run_decode(self._leaves, self._cache, work)
        return np.asarray(ids_S), np.asarray(logprobs_S)

    def _read_in(self, leaves: list[Array], cache: Cache, work: ReadIn) -> Cache:
        return self._merge(leaves).extend(cache, *work)[1]

    def _decode(self, leaves: list[Array], cache: Cache, work: Decode) -> tuple[Array, Array, Cache]:
        model = self._merge(leaves)
        hidden_S1W, cache = model.extend(cache, work.ids_S[:, None], work.positions_S, work.lengths_S)
        logits_SV = model.logits(hidden_S1W[:, 0])
        return *sample_tokens(logits_SV, work.temperature_S, work.keys_S2, work.positions_S + 1), cache

    def _merge(self, leaves: list[Array]) -> Transformer:
        return nnx.merge(self._graphdef, jax.tree.unflatten(self._treedef, leaves))

    def _compile(self, program, work: ReadIn | Decode):
        jitted = jax.jit(program, donate_argnums=1, in_shardings=self._sharding)
        self.compilations += 1
        return jitted.lower(self._leaves, self._cache, work).compile()
