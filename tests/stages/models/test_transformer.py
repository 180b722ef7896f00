"""The packed and the cached forward pass against NumPy and against each other."""

import jax
import numpy as np
import pytest
from flax import nnx

from stages.models.cache import empty_cache
from stages.models.config import ModelConfig
from stages.models.transformer import Transformer

CONFIG = ModelConfig(
    vocab_size=23, width=16, num_layers=3, num_heads=4, num_kv_heads=2, head_size=6, mlp_width=20, context_length=16
)


@pytest.fixture(scope="module")
def model() -> Transformer:
    return Transformer(CONFIG, nnx.Rngs(1))


def random_ids(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, CONFIG.vocab_size, shape).astype(np.int32)


@nnx.jit
def forward(model: Transformer, *packed: np.ndarray) -> jax.Array:
    return model(*packed)


@nnx.jit
def extend(model: Transformer, *args):
    return model.extend(*args)


def alone(model: Transformer, ids_T: np.ndarray) -> np.ndarray:
    """Logits of one segment, padded to the one length compiled here."""
    num = len(ids_T)
    padded = np.zeros((1, 16), np.int32)
    padded[0, :num] = ids_T
    positions = np.arange(16, dtype=np.int32)[None]
    return np.asarray(forward(model, padded, positions, (positions < num).astype(np.int32)))[0, :num]


def by_name(block: nnx.Module) -> dict[str, np.ndarray]:
    leaves = jax.tree_util.tree_leaves_with_path(nnx.state(block))
    return {jax.tree_util.keystr(at[:-1], simple=True, separator="."): np.asarray(leaf, np.float64) for at, leaf in leaves}


def by_hand(model: Transformer, ids_T: np.ndarray) -> np.ndarray:
    """The same decoder in float64 NumPy, token by token, one head at a time, rotating complex pairs."""
    config = model.config
    blocks = [by_name(block) for block in model.blocks]

    def norm(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x**2).mean() + config.norm_epsilon) * scale

    def turn(head_D: np.ndarray, at: int) -> np.ndarray:
        half = config.head_size // 2
        z = (head_D[:half] + 1j * head_D[half:]) * np.exp(1j * at * config.rotary.base ** (-np.arange(half) / half))
        return np.concatenate([z.real, z.imag])

    embedding = np.asarray(model.embedding_VW[...], np.float64)
    seen = [[] for _ in range(config.num_layers)]
    rows = []
    for at, token in enumerate(ids_T):
        x = embedding[token]
        for layer in range(config.num_layers):
            p = blocks[layer]
            h = norm(x, p["attention_norm_W"])
            heads = {name: (h @ p[f"{name}.kernel_IO"]).reshape(-1, config.head_size) for name in ("query", "key", "value")}
            seen[layer].append(([turn(k, at) for k in heads["key"]], heads["value"]))
            mixed = []
            for head, query in enumerate(heads["query"]):
                group = head // (config.num_heads // config.num_kv_heads)
                scores = np.array([turn(query, at) @ keys[group] for keys, _ in seen[layer]]) / np.sqrt(config.head_size)
                weights = np.exp(scores) / np.exp(scores).sum()
                mixed.append(sum(w * values[group] for w, (_, values) in zip(weights, seen[layer], strict=True)))
            x = x + np.concatenate(mixed) @ p["output.kernel_IO"]
            h = norm(x, p["mlp_norm_W"])
            gate = h @ p["mlp.gate.kernel_IO"]
            x = x + (gate / (1 + np.exp(-gate)) * (h @ p["mlp.up.kernel_IO"])) @ p["mlp.down.kernel_IO"]
        rows.append(norm(x, np.asarray(model.final_norm_W[...])) @ embedding.T)
    return np.array(rows)


def test_logits_equal_those_of_a_decoder_written_by_hand(model):
    ids = random_ids(9)
    np.testing.assert_allclose(alone(model, ids), by_hand(model, ids), atol=2e-5)


def test_packed_segments_do_not_see_each_other_or_the_padding(model):
    first, second = random_ids(5), random_ids(8)[::-1]
    ids = np.concatenate([first, second, np.full(3, 7, np.int32)])[None]
    positions = np.concatenate([np.arange(5), np.arange(8), np.zeros(3)]).astype(np.int32)[None]
    segments = np.repeat([1, 2, 0], [5, 8, 3]).astype(np.int32)[None]
    logits = np.asarray(forward(model, ids, positions, segments))[0]
    np.testing.assert_allclose(logits[:5], alone(model, first), atol=1e-5)
    np.testing.assert_allclose(logits[5:13], alone(model, second), atol=1e-5)
    assert np.isfinite(logits).all()


def test_left_padding_does_not_shift_positions(model):
    """S79."""
    ids = random_ids(6)
    padded = np.concatenate([np.zeros(10, np.int32), ids])[None]
    positions = np.concatenate([np.zeros(10), np.arange(6)]).astype(np.int32)[None]
    segments = np.repeat([0, 1], [10, 6]).astype(np.int32)[None]
    np.testing.assert_allclose(np.asarray(forward(model, padded, positions, segments))[0, 10:], alone(model, ids), atol=1e-5)


def test_token_by_token_and_in_chunks_give_what_one_pass_gives(model):
    """Slots 2 and 0 are filled in chunks of uneven length, then extended one token at a time over all slots."""
    ids = random_ids(2, 12)
    cache = empty_cache(CONFIG, 3, 16)
    slots = np.array([2, 0], np.int32)
    done = np.zeros(2, np.int32)
    got = np.zeros((2, 12, CONFIG.width), np.float32)
    for lengths in ([3, 1], [2, 4]):
        chunk = np.zeros((2, 4), np.int32)
        for row, num in enumerate(lengths):
            chunk[row, :num] = ids[row, done[row] : done[row] + num]
        hidden, cache = extend(model, cache, chunk, done, np.array(lengths, np.int32), slots)
        for row, num in enumerate(lengths):
            got[row, done[row] : done[row] + num] = hidden[row, :num]
        done = done + np.array(lengths, np.int32)
    for at in range(5, 12):
        by_slot = np.array([ids[1, at], 0, ids[0, at]], np.int32)
        taking_part = np.array([1, 0, 1], np.int32)
        hidden, cache = extend(model, cache, by_slot[:, None], np.full(3, at, np.int32), taking_part)
        got[0, at], got[1, at] = hidden[2, 0], hidden[0, 0]
    for row in range(2):
        logits = got[row] @ np.asarray(model.embedding_VW[...]).T
        np.testing.assert_allclose(logits, alone(model, ids[row]), atol=1e-5)


def test_slot_that_takes_no_part_keeps_its_cache(model):
    cache = empty_cache(CONFIG, 2, 8)
    _, cache = extend(model, cache, random_ids(2, 1), np.array([3, 7], np.int32), np.array([1, 0], np.int32))
    written = sum(np.abs(np.asarray(layer.keys_SKDT)).sum(axis=(1, 2)) for layer in cache.layers) > 0
    assert np.argwhere(written).tolist() == [[0, 3]]


def test_write_past_the_end_of_a_slot_is_dropped(model):
    cache = empty_cache(CONFIG, 1, 4)
    _, cache = extend(model, cache, random_ids(1, 3), np.array([3], np.int32), np.array([3], np.int32))
    written = sum(np.abs(np.asarray(layer.values_SKTD)).sum(axis=(0, 1, 3)) for layer in cache.layers) > 0
    assert written.tolist() == [False, False, False, True]


def test_untied_model_projects_with_parameters_of_its_own():
    config = CONFIG.model_copy(update={"tie_embeddings": False, "num_layers": 1})
    model = Transformer(config, nnx.Rngs(0))
    hidden = np.ones((2, config.width), np.float32)
    np.testing.assert_allclose(model.logits(hidden), hidden @ np.asarray(model.unembedding_VW[...]).T, rtol=1e-5)


def test_all_state_of_a_model_is_parameters_in_float32(model):
    graphdef, parameters = nnx.split(model, nnx.Param)
    assert {leaf.dtype for leaf in jax.tree.leaves(parameters)} == {np.dtype("float32")}
    ids = random_ids(4)
    np.testing.assert_array_equal(alone(nnx.merge(graphdef, parameters), ids), alone(model, ids))
