"""The engine's compiled programs, the caches they pass on, and the parameters they read. Engine's thread only.

All programs are compiled ahead of time: a call with a shape that was not is an error, never a compilation. Engines of one shape
in one process (training and evaluation) share them.

Axes: S slots, R rows of a prefill step, C tokens of a row.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx
from jax.sharding import SingleDeviceSharding
from jaxtyping import Array

from stages.models.cache import Cache, empty_cache
from stages.models.config import ModelConfig
from stages.models.transformer import Transformer
from stages.rollout.config import EngineConfig
from stages.rollout.sampling import Drawn, no_draws, sample_tokens
from stages.rollout.schedule import Copy, Decode, Move, ReadIn
from stages.rollout.weights import is_gone

Merge = Callable[[list[Array]], Transformer]


class Device:
    """A model where its parameters are. They are shared with whoever made them and never donated; the caches are ours."""

    def __init__(self, model: Transformer, config: EngineConfig):
        self.compilations = 0
        self._config = config
        self._model = model

    @property
    def parameters(self) -> nnx.State:
        """What is in force, as a tree. Of an open device."""
        return jax.tree.unflatten(self._treedef, self._leaves)

    def open(self) -> None:
        """Take the model's parameters as they are now, make the caches and compile all programs."""
        graphdef, parameters = nnx.split(self._model, nnx.Param)
        self._leaves, self._treedef = jax.tree.flatten(parameters)
        self._sharding = SingleDeviceSharding(min(self._leaves[0].devices(), key=lambda device: device.id))
        self.load(self._leaves)
        config = self._config
        self._cache = self._empty(config.slots)
        self._shelf = self._empty(config.kept) if config.kept else None
        self._programs = _compile(graphdef, self._treedef, self._model.config, config, self._sharding)
        self.compilations = self._programs.count
        self.buckets = self._agreeing_buckets()
        # The first call of a program is slow. Nobody's request should be the one.
        self.decode(_idle(config.slots))

    def close(self) -> None:
        """Let go of the caches."""
        del self._cache, self._shelf

    def load(self, leaves: list[Array]) -> None:
        """Put other parameters in force, all or none; the caller has checked that they match.

        Raises:
            ValueError: some were deleted since they were checked.
        """
        if gone := sum(map(is_gone, leaves)):
            raise ValueError(f"{gone} of {len(leaves)} arrays were deleted after they were published")
        self._leaves = jax.device_put(leaves, self._sharding)

    def move(self, move: Move) -> None:
        """Copy a row's cache into a slot, or let a slot and a row of the shelf change places."""
        slots, slot = self._config.slots, np.int32(move.slot)
        if not isinstance(move, Copy):
            place = np.int32(move.place - slots)
            self._cache, self._shelf = self._programs.exchange(self._cache, self._shelf, slot, place)
        elif move.source < slots:
            self._cache = self._programs.copy(self._cache, np.int32(move.source), slot)
        else:
            self._cache = self._programs.fetch(self._cache, self._shelf, np.int32(move.source - slots), slot)

    def read_in(self, work: ReadIn) -> None:
        """Cache the keys and values of context tokens. Returns when the device is done, so that spans show its time."""
        self._cache = jax.block_until_ready(self._programs.read_in[len(work.lengths_R)](self._leaves, self._cache, work))

    def decode(self, work: Decode) -> Drawn:
        """Sample a token for every slot, on the host; slots of length 0 hold noise."""
        drawn, self._cache = self._programs.decode(self._leaves, self._cache, work)
        return Drawn(*map(np.asarray, drawn))

    def _agreeing_buckets(self) -> tuple[int, ...]:
        """Numbers of rows of prefill steps that cache the very bits the largest step does, the largest included.

        Found by trial: XLA chooses an order of summation by the shape of a product, and says nowhere which.
        """
        wanted, *smaller = sorted(self._programs.read_in, reverse=True)
        expected = self._trial(wanted)
        agreeing = [rows for rows in smaller if all(map(np.array_equal, self._trial(rows), expected))]
        return (*sorted(agreeing), wanted)

    def _trial(self, rows: int) -> list[np.ndarray]:
        """What a step of so many rows caches for two chunks, one after the other, in slot 0; it is overwritten in use."""
        chunk = min(self._config.prefill_chunk, self._config.context_length // 2)
        ids_RC = np.zeros((rows, self._config.prefill_chunk), np.int32)
        starts_R, lengths_R, slots_R = np.zeros(rows, np.int32), np.zeros(rows, np.int32), np.arange(rows, dtype=np.int32)
        lengths_R[0] = chunk
        for start in (0, chunk):
            ids_RC[0] = np.arange(start, start + self._config.prefill_chunk) % self._model.config.vocab_size
            starts_R[0] = start
            self.read_in(ReadIn(ids_RC, starts_R, lengths_R, slots_R))
        return [np.asarray(leaf) for leaf in jax.tree.leaves(self._programs.row(self._cache, np.int32(0)))]

    def _empty(self, num_slots: int) -> Cache:
        return jax.device_put(empty_cache(self._model.config, num_slots, self._config.context_length), self._sharding)


class _Programs(NamedTuple):
    """Compiled for one engine shape. Caches are donated, shelves only where they change."""

    read_in: Mapping[int, Any]
    """By number of rows."""
    decode: Any
    copy: Any
    """Slot to slot."""
    fetch: Any
    """Shelf to slot; ``None`` without a shelf, as the next one."""
    exchange: Any
    row: Any
    """One slot's cache, copied out."""

    @property
    def count(self) -> int:
        return len(self.read_in) + sum(program is not None for program in self[1:])


def _idle(slots: int) -> Decode:
    """A decode step in which no slot takes part."""
    by_slot = np.zeros(slots, np.int32)
    return Decode(by_slot, by_slot, by_slot, no_draws(slots))


def _read_in(merge: Merge, leaves: list[Array], cache: Cache, work: ReadIn) -> Cache:
    return merge(leaves).extend(cache, *work)[1]


def _decode(merge: Merge, leaves: list[Array], cache: Cache, work: Decode) -> tuple[Drawn, Cache]:
    model = merge(leaves)
    hidden_S1W, cache = model.extend(cache, work.ids_S[:, None], work.positions_S, work.lengths_S)
    logits_SV = model.logits(hidden_S1W[:, 0])
    return sample_tokens(logits_SV, work.draw, work.positions_S + 1), cache


def _row(array: Array, index: Array) -> Array:
    return jax.lax.dynamic_slice_in_dim(array, index, 1)


def _put(array: Array, row: Array, index: Array) -> Array:
    return jax.lax.dynamic_update_slice_in_dim(array, row, index, 0)


def _copy(cache: Cache, source: Array, slot: Array) -> Cache:
    return jax.tree.map(lambda array: _put(array, _row(array, source), slot), cache)


def _fetch(cache: Cache, shelf: Cache, source: Array, slot: Array) -> Cache:
    return jax.tree.map(lambda array, kept: _put(array, _row(kept, source), slot), cache, shelf)


def _exchange(cache: Cache, shelf: Cache, slot: Array, place: Array) -> tuple[Cache, Cache]:
    rows = jax.tree.map(lambda array, kept: (_row(array, slot), _row(kept, place)), cache, shelf)
    new = jax.tree.map(lambda array, pair: _put(array, pair[1], slot), cache, rows)
    return new, jax.tree.map(lambda kept, pair: _put(kept, pair[0], place), shelf, rows)


@functools.lru_cache(maxsize=8)
def _compile(
    graphdef: nnx.GraphDef[Transformer],
    treedef: jax.tree_util.PyTreeDef,
    model_config: ModelConfig,
    config: EngineConfig,
    sharding: SingleDeviceSharding,
) -> _Programs:
    def merge(leaves: list[Array]) -> Transformer:
        return nnx.merge(graphdef, jax.tree.unflatten(treedef, leaves))

    def empty(num_slots: int) -> Any:
        return jax.eval_shape(lambda: empty_cache(model_config, num_slots, config.context_length))

    def compiled(program: Callable[..., Any], *arguments: Any, donate: tuple[int, ...]) -> Any:
        return jax.jit(program, donate_argnums=donate, in_shardings=sharding).lower(*arguments).compile()

    model = nnx.eval_shape(lambda: Transformer(model_config, nnx.Rngs(0)))
    leaves = jax.tree.leaves(nnx.split(model, nnx.Param)[1])
    cache, shelf, index = empty(config.slots), empty(config.kept), np.int32(0)

    def read_in(rows: int) -> Any:
        by_row = np.zeros(rows, np.int32)
        work = ReadIn(np.zeros((rows, config.prefill_chunk), np.int32), by_row, by_row, by_row)
        return compiled(functools.partial(_read_in, merge), leaves, cache, work, donate=(1,))

    return _Programs(
        read_in={rows: read_in(rows) for rows in config.prefill_buckets},
        decode=compiled(functools.partial(_decode, merge), leaves, cache, _idle(config.slots), donate=(1,)),
        copy=compiled(_copy, cache, index, index, donate=(0,)),
        fetch=compiled(_fetch, cache, shelf, index, index, donate=(0,)) if config.kept else None,
        row=compiled(lambda cache, slot: jax.tree.map(lambda array: _row(array, slot), cache), cache, index, donate=()),
        exchange=compiled(_exchange, cache, shelf, index, index, donate=(0, 1)) if config.kept else None,
    )
