"""What the compiled programs need beside the caches."""

import jax
import numpy as np
import pytest
from flax import nnx

from stages.models.config import ModelConfig
from stages.models.transformer import Transformer
from stages.rollout.config import EngineConfig
from stages.rollout.device import Device
from stages.rollout.steps import Copy, Exchange

MODEL = ModelConfig(
    vocab_size=29, width=16, num_layers=2, num_heads=4, num_kv_heads=2, head_size=4, mlp_width=24, context_length=32
)
CONFIG = EngineConfig(slots=4, kept=3, context_length=32, prefill_rows=2, prefill_chunk=8)


@pytest.fixture(scope="module")
def device() -> Device:
    device = Device(Transformer(MODEL, nnx.Rngs(0)), CONFIG)
    device.open()
    return device


@pytest.mark.parametrize("name", ["copy", "fetch", "keep", "row"])
def test_moving_a_row_takes_no_more_memory_than_a_row_beside_the_caches(device, name):
    """Otherwise XLA copies caches whole, hundreds of megabytes for each turn of an episode."""
    row = sum(leaf.nbytes for leaf in jax.tree.leaves(device._cache)) // CONFIG.slots
    assert getattr(device._programs, name).memory_analysis().temp_size_in_bytes <= row


def test_steps_change_the_cache_in_place(device):
    cache = sum(leaf.nbytes for leaf in jax.tree.leaves(device._cache))
    for program in (*device._programs.decode.values(), *device._programs.read_in.values()):
        assert program.memory_analysis().alias_size_in_bytes >= cache


def test_moves_put_rows_where_they_say(device):
    """Each row filled with its own number: after a copy, a fetch and an exchange they stand as in a list of numbers."""

    def numbered(cache, first: int):
        def fill(array):
            numbers = np.arange(first, first + len(array), dtype=np.float32).reshape(-1, *[1] * (array.ndim - 1))
            return jax.device_put(np.broadcast_to(numbers, array.shape), array.sharding)

        return jax.tree.map(fill, cache)

    device._cache, device._shelf = numbered(device._cache, 0), numbered(device._shelf, 4)
    for move in (Copy(0, 1), Copy(5, 2), Exchange(3, 6), Exchange(1, 4)):
        device.move(move)
    rows = [leaf for layer in zip(*map(jax.tree.leaves, (device._cache, device._shelf)), strict=True) for leaf in layer]
    for slots, shelf in zip(rows[::2], rows[1::2], strict=True):
        found = np.concatenate([slots, shelf])
        assert (found == found[:, :1, :1, :1]).all()
        assert found[:, 0, 0, 0].tolist() == [0, 4, 5, 6, 0, 5, 3]
