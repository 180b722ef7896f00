"""The engine's compiled programs and the caches they pass on. Engine's thread only. What they read is in ``parameters.py``.

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
from jax.sharding import Mesh
from jaxtyping import Array

from stages.models.cache import Cache, empty_cache
from stages.models.config import ModelConfig
from stages.models.mesh import replicated
from stages.models.sharding import cache_sharding
from stages.models.transformer import Transformer
from stages.rollout.config import EngineConfig
from stages.rollout.parameters import Parameters
from stages.rollout.sampling import Drawn, no_draws, sample_tokens
from stages.rollout.steps import Copy, Decode, Move, ReadIn

Merge = Callable[[list[Array]], Transformer]


class Device:
    """A model on a mesh. Its parameters may be shared with whoever made them and are never donated; the caches are ours.

    Attributes:
        parameters: of an open device.
    """

    parameters: Parameters

    def __init__(self, model: Transformer, config: EngineConfig, mesh: Mesh | None = None):
        self.compilations = 0
        self._config = config
        self._model, self._mesh = model, mesh

    def open(self) -> None:
        """Take the model's parameters as they are now, make the caches and compile all programs."""
        config, held = self._config, Parameters(self._model, self._config.dtype, self._mesh)
        self.parameters = held
        self._cache = self._empty(config.slots)
        self._shelf = self._empty(config.kept) if config.kept else None
        self._programs = _compile(held.graphdef, held.structure, held.shapes, held.config, config.shape, held.mesh)
        self.compilations = self._programs.count
        self.buckets = self._agreeing_buckets()
        # The first call of a program is slow. Nobody's request should be the one.
        self.decode(_idle(config.slots))

    def close(self) -> None:
        """Let go of the caches."""
        del self._cache, self._shelf

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
        self._cache = jax.block_until_ready(
            self._programs.read_in[len(work.lengths_R)](self.parameters.leaves, self._cache, work)
        )

    def decode(self, work: Decode) -> Drawn:
        """Sample a token for every slot, on the host; slots of length 0 hold noise."""
        drawn, self._cache = self._programs.decode(self.parameters.leaves, self._cache, work)
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
        held = self.parameters
        place = cache_sharding(held.config, held.mesh)
        return jax.device_put(empty_cache(held.config, num_slots, self._config.context_length), place)


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
    leaves: tuple[jax.ShapeDtypeStruct, ...],
    model_config: ModelConfig,
    config: EngineConfig,
    mesh: Mesh,
) -> _Programs:
    def merge(leaves: list[Array]) -> Transformer:
        return nnx.merge(graphdef, jax.tree.unflatten(treedef, leaves))

    def empty(num_slots: int) -> Any:
        return jax.eval_shape(lambda: empty_cache(model_config, num_slots, config.context_length))

    everywhere, slotted = replicated(mesh), cache_sharding(model_config, mesh)
    parameters = [leaf.sharding for leaf in leaves]

    def compiled(program: Callable[..., Any], *arguments: Any, places: Any, gives: Any, donate: tuple[int, ...]) -> Any:
        jitted = jax.jit(program, donate_argnums=donate, in_shardings=places, out_shardings=gives)
        return jitted.lower(*arguments).compile()

    cache, shelf, index = empty(config.slots), empty(config.kept), np.int32(0)

    def read_in(rows: int) -> Any:
        by_row = np.zeros(rows, np.int32)
        work = ReadIn(np.zeros((rows, config.prefill_chunk), np.int32), by_row, by_row, by_row)
        return compiled(functools.partial(_read_in, merge), list(leaves), cache, work, places=model, gives=slotted, donate=(1,))

    model, indices = (parameters, slotted, everywhere), (everywhere, everywhere)
    moved, fetched = {"gives": slotted, "donate": (0,)}, (slotted, slotted, *indices)
    exchanged = {"places": fetched, "gives": slotted, "donate": (0, 1)}
    return _Programs(
        read_in={rows: read_in(rows) for rows in config.prefill_buckets},
        decode=compiled(
            functools.partial(_decode, merge), list(leaves), cache, _idle(config.slots),
            places=model, gives=(everywhere, slotted), donate=(1,),
        ),
        copy=compiled(_copy, cache, index, index, places=(slotted, *indices), **moved),
        fetch=compiled(_fetch, cache, shelf, index, index, places=fetched, **moved) if config.kept else None,
        row=compiled(
            lambda cache, slot: jax.tree.map(lambda array: _row(array, slot), cache), cache, index,
            places=(slotted, everywhere), gives=everywhere, donate=(),
        ),
        exchange=compiled(_exchange, cache, shelf, index, index, **exchanged) if config.kept else None,
    )  # fmt: skip
