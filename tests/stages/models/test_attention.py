"""Attention, packed and cached, against a loop over rows, heads and queries."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stages.models import blocked_attention
from stages.models.attention import cached_attention, packed_attention

RANDOM = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def mixed(query_D: np.ndarray, keys_SD: np.ndarray, values_SD: np.ndarray, cap: float | None) -> np.ndarray:
    """One query over the list of what it may see."""
    scores = keys_SD.astype(np.float64) @ query_D * 0.3
    if cap is not None:
        scores = cap * np.tanh(scores / cap)
    weights = np.exp(scores)
    return (weights / weights.sum()) @ values_SD


@pytest.mark.parametrize("cap", [None, 0.7])
def test_cached_attention_is_a_loop_over_what_each_query_may_see(cap):
    query, keys, values = draw(2, 4, 6, 8), draw(2, 2, 8, 7), draw(2, 2, 7, 8)
    allowed = RANDOM.random((2, 4, 7)) < 0.6
    allowed[:, :, 5] = True
    got = np.asarray(cached_attention(query, keys, values, allowed, scale=0.3, cap=cap))
    for row, at, head in np.ndindex(2, 4, 6):
        seen = np.flatnonzero(allowed[row, at])
        expected = mixed(query[row, at, head], keys[row, head // 3].T[seen], values[row, head // 3, seen], cap)
        np.testing.assert_allclose(got[row, at, head], expected, atol=1e-5)


@pytest.mark.parametrize("cap", [None, 0.7])
@pytest.mark.parametrize("window", [None, 1, 3])
def test_packed_attention_sees_its_own_segment_back_to_the_window(window, cap):
    query, keys, values = draw(1, 9, 6, 8), draw(1, 9, 2, 8), draw(1, 9, 2, 8)
    segments = np.array([[1, 1, 1, 1, 2, 2, 2, 0, 0]], np.int32)
    got = np.asarray(packed_attention(query, keys, values, segments, scale=0.3, window=window, cap=cap))
    for at, head in np.ndindex(9, 6):
        seen = [s for s in range(at + 1) if segments[0, s] == segments[0, at] and (window is None or at - s < window)]
        expected = mixed(query[0, at, head], keys[0, seen, head // 3], values[0, seen, head // 3], cap)
        np.testing.assert_allclose(got[0, at, head], expected, atol=1e-5)


def test_query_that_may_see_nothing_gives_a_finite_value():
    nothing = np.zeros((1, 2, 3), bool)
    assert np.isfinite(cached_attention(draw(1, 2, 1, 4), draw(1, 1, 4, 3), draw(1, 1, 3, 4), nothing, scale=1.0)).all()


def packed_rows(*lengths: list[int]) -> np.ndarray:
    """Segment numbers of rows of 300 tokens, padded; more than two blocks each."""
    rows = np.zeros((len(lengths), 300), np.int32)
    for row, of_row in zip(rows, lengths, strict=True):
        filled = np.repeat(np.arange(1, len(of_row) + 1), of_row)
        row[: len(filled)] = filled
    return rows


@pytest.mark.slow
@pytest.mark.parametrize(("window", "cap"), [(None, None), (40, None), (150, 0.7)])
def test_blocks_give_what_all_pairs_give(monkeypatch, window, cap):
    """Values and gradients, for segments that end within blocks and between them, and a row of padding alone."""
    segments = packed_rows([128, 1, 90, 40], [300], [5] * 20, [])
    query, keys, values, towards = draw(4, 300, 4, 8), draw(4, 300, 2, 8), draw(4, 300, 2, 8), draw(4, 300, 4, 8)
    real = (segments > 0)[:, :, None, None]

    def summed(*parts: jax.Array) -> jax.Array:
        mixed = packed_attention(*parts, segments, scale=0.3, window=window, cap=cap)
        return jnp.sum(jnp.where(real, mixed * towards, 0.0)), mixed

    blocked = jax.jit(jax.value_and_grad(summed, argnums=(0, 1, 2), has_aux=True))
    (value, mixed), gradient = blocked(query, keys, values)
    assert np.isfinite(mixed).all()
    with monkeypatch.context() as patch:
        patch.setattr("stages.models.attention.BLOCK", 300)
        (expected, plain), wanted = jax.jit(jax.value_and_grad(summed, argnums=(0, 1, 2), has_aux=True))(query, keys, values)
    np.testing.assert_allclose(value, expected, rtol=1e-4)
    np.testing.assert_allclose(np.where(real, mixed, 0.0), np.where(real, plain, 0.0), atol=2e-6)
    for mine, other in zip(gradient, wanted, strict=True):
        np.testing.assert_allclose(mine, other, atol=2e-5)


def test_blocks_that_share_no_segment_are_skipped():
    """First block that each may see: worked out by hand for segments of 128, 300 and 60 tokens, and two blocks of padding."""
    known = np.full((6, 1, 128), blocked_attention.PADDING, np.int32)
    known.reshape(-1)[:488] = np.repeat([1, 2, 3], [128, 300, 60])
    assert blocked_attention._first_blocks(known, None).tolist() == [0, 1, 1, 1, 4, 5]
    assert blocked_attention._first_blocks(known, 100).tolist() == [0, 1, 1, 2, 4, 5]
