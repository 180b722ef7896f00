"""The engine's compiled programs and the caches they pass on. Engine's thread only. What they read is in ``parameters.py``.

All programs are compiled ahead of time: a call with a shape that was not is an error, never a compilation. Engines of one shape
in one process (training and evaluation) share them.

Steps come in several sizes, of which only those are used that give the very bits of the largest of their kind. That is found
by trial when the device opens: XLA chooses an order of summation by the shape of a product, and says nowhere which.

Axes: S slots, R rows of a prefill step, C tokens of a row, N rows of a decode step.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh
from jaxtyping import Array

from stages.models.cache import Cache, empty_cache
from stages.models.config import ModelConfig
from stages.models.mesh import replicated, starting
from stages.models.sharding import cache_sharding
from stages.models.transformer import Transformer
from stages.roles import compiling
from stages.rollout.config import EngineConfig
from stages.rollout.parameters import Parameters
from stages.rollout.sampling import Drawn, no_draws, sample_tokens
from stages.rollout.steps import Copy, Decode, Move, ReadIn

Merge = Callable[[list[Array]], Transformer]


class Device:
    """A model on a mesh. Its parameters may be shared with whoever made them and are never donated; the caches are ours.

    Attributes:
        parameters: of an open device.
        prefill_buckets: numbers of rows that prefill steps may have, ascending. Of an open device.
        decode_buckets: the same of decode steps; the last is the number of slots.
    """

    parameters: Parameters
    prefill_buckets: tuple[int, ...]
    decode_buckets: tuple[int, ...]

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
        # The first call of a program is slow. Nobody's request should be the one: each is tried here.
        self.prefill_buckets = _agreeing(config.prefill_buckets, self._try_reading_in)
        self.decode_buckets = _agreeing(config.decode_buckets, self._try_decoding)

    @property
    def programs(self) -> Mapping[str, Any]:
        """What steps run, by name and shape. Of an open device; to read."""
        chunk = self._config.prefill_chunk
        reading = {f"prefill {rows}x{chunk}": self._programs.read_in[rows] for rows in self.prefill_buckets}
        return reading | {f"decode {rows}": self._programs.decode[rows] for rows in self.decode_buckets}

    @property
    def arrays(self) -> Mapping[str, Any]:
        """What lies on the devices, by what it is. Of an open device, and of a moment at which it does nothing; to read."""
        return {"weights": self.parameters.leaves, "keys and values": [self._cache, self._shelf]}

    def close(self) -> None:
        """Let go of the caches."""
        del self._cache, self._shelf

    def move(self, move: Move) -> None:
        """Copy a row's cache into a slot, or let a slot and a row of the shelf change places."""
        slots, slot = self._config.slots, np.int32(move.slot)
        with starting(self.parameters.mesh):
            if not isinstance(move, Copy):
                place = np.int32(move.place - slots)
                row = self._programs.row(self._cache, slot)
                self._cache = self._programs.fetch(self._cache, self._shelf, place, slot)
                self._shelf = self._programs.keep(self._shelf, row, place)
            elif move.source < slots:
                self._cache = self._programs.copy(self._cache, np.int32(move.source), slot)
            else:
                self._cache = self._programs.fetch(self._cache, self._shelf, np.int32(move.source - slots), slot)

    def read_in(self, work: ReadIn) -> None:
        """Cache the keys and values of context tokens. Returns when the device is done, so that spans show its time."""
        with starting(self.parameters.mesh):
            self._cache = self._programs.read_in[len(work.lengths_R)](self.parameters.leaves, self._cache, work)
        jax.block_until_ready(self._cache)

    def decode(self, work: Decode) -> Drawn:
        """Sample a token for every row, on the host; rows of length 0 hold noise."""
        with starting(self.parameters.mesh):
            drawn, self._cache = self._programs.decode[len(work.ids_N)](self.parameters.leaves, self._cache, work)
        return Drawn(*map(np.asarray, drawn))

    def _try_reading_in(self, rows: int) -> list[np.ndarray]:
        """What a step of so many rows caches in slot 0, whose tokens are in its first and last row."""
        config, row_R = self._config, np.arange(rows, dtype=np.int32)
        chunk = min(config.prefill_chunk, config.context_length // 2)
        slots_R, lengths_R = np.where(row_R < config.slots, row_R, 0), np.where(row_R < config.slots, chunk, 0)
        slots_R[-1], lengths_R[-1] = 0, chunk
        # A step of one row has to be made twice for the same tokens.
        for first, last in [(0, chunk)] if rows > 1 else [(0, 0), (chunk, chunk)]:
            starts_R = np.zeros(rows, np.int32)
            starts_R[0], starts_R[-1] = first, last
            positions_RC = starts_R[:, None] + np.arange(config.prefill_chunk, dtype=np.int32)
            self.read_in(ReadIn(self._some_ids(slots_R[:, None], positions_RC), starts_R, lengths_R, slots_R))
        return self._cached_in(0)

    def _try_decoding(self, rows: int) -> list[np.ndarray]:
        """What a step of so many rows draws and caches for as many slots, over the whole range, as the smallest step has.

        Half of them are the first rows of the step and half the last.
        """
        config = self._config
        every_S = np.arange(config.slots, dtype=np.int32)
        compared = np.linspace(0, config.slots - 1, config.decode_buckets[0]).round().astype(np.int32)
        first, last = np.array_split(compared, 2)
        between = np.setdiff1d(every_S, compared)[: rows - len(compared)]
        slots_N = every_S if rows == config.slots else np.concatenate([first, between, last])
        at = np.array([slots_N.tolist().index(slot) for slot in compared])
        positions_N = np.full(rows, min(2 * config.prefill_chunk, config.context_length - 1), np.int32)
        draw = no_draws(rows)._replace(keys_S2=np.stack([slots_N, positions_N], axis=1).astype(np.uint32))
        drawn = self.decode(Decode(self._some_ids(slots_N, positions_N), positions_N, np.ones(rows, np.int32), slots_N, draw))
        return [*(part[at] for part in drawn), *(array for slot in compared for array in self._cached_in(slot))]

    def _some_ids(self, slots: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Tokens that differ from slot to slot and from position to position."""
        return ((positions * 31 + slots * 7) % self._model.config.vocab_size).astype(np.int32)

    def _cached_in(self, slot: int) -> list[np.ndarray]:
        return [np.asarray(leaf) for leaf in jax.tree.leaves(self._programs.row(self._cache, np.int32(slot)))]

    def _empty(self, num_slots: int) -> Cache:
        held = self.parameters
        place = cache_sharding(held.config, held.mesh)
        return jax.device_put(empty_cache(held.config, num_slots, self._config.context_length), place)


class _Programs(NamedTuple):
    """Compiled for one engine shape. Caches are donated, shelves only where they change."""

    read_in: Mapping[int, Any]
    """By number of rows."""
    decode: Mapping[int, Any]
    """By number of rows."""
    copy: Any
    """Slot to slot."""
    fetch: Any
    """Shelf to slot; ``None`` without a shelf, as the next one."""
    keep: Any
    """A slot's cache, copied out, to the shelf. One program that lets slot and shelf change places would copy both of them
    whole, a hundred times as long: XLA does not see that each row is read before it is written."""
    row: Any
    """One slot's cache, copied out."""

    @property
    def count(self) -> int:
        return len(self.read_in) + len(self.decode) + sum(program is not None for program in self[2:])


def _agreeing(sizes: Sequence[int], attempt: Callable[[int], list[np.ndarray]]) -> tuple[int, ...]:
    """The sizes whose attempt comes to the very bits of the largest, the largest included; ascending as they are."""
    *smaller, largest = sizes
    expected = attempt(largest)
    return (*(size for size in smaller if all(map(np.array_equal, attempt(size), expected))), largest)


def _read_in(merge: Merge, leaves: list[Array], cache: Cache, work: ReadIn) -> Cache:
    return merge(leaves).extend(cache, *work)[1]


def _decode(merge: Merge, leaves: list[Array], cache: Cache, work: Decode) -> tuple[Drawn, Cache]:
    model = merge(leaves)
    # A step of all slots gathers none.
    slots_N = None if len(work.ids_N) == cache.num_slots else work.slots_N
    hidden_N1W, cache = model.extend(cache, work.ids_N[:, None], work.positions_N, work.lengths_N, slots_N)
    logits_NV = model.logits(hidden_N1W[:, 0])
    return sample_tokens(logits_NV, work.draw, work.positions_N + 1), cache


def _row(array: Array, index: Array) -> Array:
    return jax.lax.dynamic_slice_in_dim(array, index, 1)


def _put(array: Array, row: Array, index: Array) -> Array:
    return jax.lax.dynamic_update_slice_in_dim(array, row, index, 0)


def _copy(cache: Cache, source: Array, slot: Array) -> Cache:
    return jax.tree.map(lambda array: _put(array, _row(array, source), slot), cache)


def _fetch(cache: Cache, shelf: Cache, source: Array, slot: Array) -> Cache:
    return jax.tree.map(lambda array, kept: _put(array, _row(kept, source), slot), cache, shelf)


def _keep(shelf: Cache, row: Cache, place: Array) -> Cache:
    return jax.tree.map(lambda kept, values: _put(kept, values, place), shelf, row)


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

    def compiled(
        name: str,
        program: Callable[..., Any],
        *arguments: Any,
        places: Any,
        gives: Any,
        donate: tuple[int, ...],
        shape: str = "",
    ) -> Any:
        jitted = jax.jit(program, donate_argnums=donate, in_shardings=places, out_shardings=gives)
        with compiling(name, shape):
            return jitted.lower(*arguments).compile()

    cache, shelf, one, index = empty(config.slots), empty(config.kept), empty(1), np.int32(0)

    def read_in(rows: int) -> Any:
        by_row = np.zeros(rows, np.int32)
        work = ReadIn(np.zeros((rows, config.prefill_chunk), np.int32), by_row, by_row, by_row)
        return compiled(
            "prefill", functools.partial(_read_in, merge), list(leaves), cache, work, places=model, gives=slotted, donate=(1,),
            shape=f"{rows}x{config.prefill_chunk}",
        )  # fmt: skip

    def decode(rows: int) -> Any:
        by_row = np.zeros(rows, np.int32)
        work, gives = Decode(by_row, by_row, by_row, by_row, no_draws(rows)), (everywhere, slotted)
        return compiled(
            "decode", functools.partial(_decode, merge), list(leaves), cache, work, places=model, gives=gives, donate=(1,),
            shape=str(rows),
        )  # fmt: skip

    model, indices = (parameters, slotted, everywhere), (everywhere, everywhere)
    moved, two = {"gives": slotted, "donate": (0,)}, (slotted, slotted)
    return _Programs(
        read_in={rows: read_in(rows) for rows in config.prefill_buckets},
        decode={rows: decode(rows) for rows in config.decode_buckets},
        copy=compiled("copy", _copy, cache, index, index, places=(slotted, *indices), **moved),
        fetch=compiled("fetch", _fetch, cache, shelf, index, index, places=(*two, *indices), **moved) if config.kept else None,
        row=compiled(
            "row", lambda cache, slot: jax.tree.map(lambda array: _row(array, slot), cache), cache, index,
            places=(slotted, everywhere), gives=slotted, donate=(),
        ),
        keep=compiled("keep", _keep, shelf, one, index, places=(*two, everywhere), **moved) if config.kept else None,
    )  # fmt: skip
