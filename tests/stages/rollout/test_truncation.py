"""Top-k, top-p and min-p against a loop that sorts."""

import jax
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stages.rollout.sampling import no_draws, request_key, sample_tokens
from stages.rollout.truncation import lowest_kept

VOCABULARY = 12
lowest = jax.jit(lowest_kept)
drawn = jax.jit(sample_tokens)


def kept(scores: np.ndarray, top_k: int, top_p: float, min_p: float) -> set[int]:
    """The tokens left, one rule after the other, in float64; a tie with the last one that stays, stays."""
    order = np.argsort(-scores, kind="stable").tolist()
    left = [i for i in order if top_k == 0 or scores[i] >= scores[order[min(top_k, len(order)) - 1]]]
    weights = np.exp(scores.astype(np.float64) - scores.max())
    total, running, last = weights[left].sum(), 0.0, left[-1]
    for i in left:
        running += weights[i]
        # A share of 1 is all tokens, also those whose weight is lost in the tolerance.
        if top_p < 1.0 and running >= top_p * total * (1 - 1e-7):
            last = i
            break
    left = [i for i in left if scores[i] >= scores[last]]
    return {i for i in left if weights[i] >= min_p * (1 - 1e-6)}


# Multiples of a half: ties are common, and no sum of weights falls within rounding of a share in thousandths by chance alone.
SCORES = st.lists(st.integers(-40, 40).map(lambda n: n / 2), min_size=VOCABULARY, max_size=VOCABULARY)


@settings(max_examples=150, deadline=None)
@example([0.0] * 11 + [-14.0], 0, 1000, 0)
@given(SCORES, st.integers(0, 14), st.integers(1, 1000), st.integers(0, 1000))
def test_lowest_score_kept_is_that_of_a_loop_that_sorts(scores, top_k, top_p, min_p):
    row = np.array(scores, np.float32)
    limits = np.array([top_k], np.int32), np.array([top_p / 1000], np.float32), np.array([min_p / 1000], np.float32)
    floor = float(lowest(row[None], row.max(keepdims=True), *limits)[0])
    expected = kept(row, top_k, top_p / 1000, min_p / 1000)
    assert {i for i in range(VOCABULARY) if row[i] >= floor - 1e-6} == expected


def test_nothing_is_lost_where_nothing_truncates():
    row = np.array([[3.0, -80.0, -np.inf]], np.float32)
    neutral = np.zeros(1, np.int32), np.ones(1, np.float32), np.zeros(1, np.float32)
    assert lowest(row, row.max(axis=1), *neutral)[0] == -np.inf


@pytest.mark.parametrize(("rule", "value", "left"), [("top_k_S", 3, 3), ("top_p_S", 0.8, 2), ("min_p_S", 0.2, 2)])
def test_frequencies_and_logprobs_are_those_of_what_is_left(rule, value, left):
    """Renormalised by hand; a count may be 5 standard deviations off."""
    logits, num = np.log(np.array([0.5, 0.05, 0.3, 0.08, 0.07], np.float32)), 4000
    draw = no_draws(num)
    getattr(draw, rule)[:] = value
    draw.keys_S2[:] = request_key((0, 0, 0, 0, 0))
    ids, logprobs, _ = drawn(np.tile(logits, (num, 1)), draw, np.arange(num, dtype=np.int32))
    order = np.argsort(-logits)[:left]
    share = np.exp(logits[order]) / np.exp(logits[order]).sum()
    counts = np.bincount(ids, minlength=5)
    assert counts.sum() == counts[order].sum()
    assert np.all(np.abs(counts[order] - num * share) < 5 * np.sqrt(num * share))
    np.testing.assert_allclose(
        np.exp(logprobs), [dict(zip(order.tolist(), share, strict=True))[i] for i in ids.tolist()], rtol=1e-4
    )


def test_slot_that_truncates_nothing_has_the_same_bits_whoever_truncates_beside_it():
    logits = np.random.default_rng(0).normal(size=(6, 300)).astype(np.float32) * 3
    plain, beside = no_draws(6), no_draws(6)
    for draw in (plain, beside):
        draw.keys_S2[:] = [request_key((0, 0, member, 0, 0)) for member in range(6)]
    beside.top_k_S[::2], beside.top_p_S[::2], beside.min_p_S[::2], beside.untempered_S[::2] = 4, 0.5, 0.1, True
    at = np.arange(6, dtype=np.int32)
    alone, company = drawn(logits, plain, at), drawn(logits, beside, at)
    np.testing.assert_array_equal(alone.ids_S[1::2], company.ids_S[1::2])
    np.testing.assert_array_equal(alone.logprobs_S[1::2], company.logprobs_S[1::2])


def test_untempered_score_is_that_of_the_whole_vocabulary_at_temperature_one():
    logits = np.random.default_rng(1).normal(size=(3, 40)).astype(np.float32) * 3
    draw = no_draws(3)
    draw.temperature_S[:], draw.top_k_S[:], draw.untempered_S[:] = (0.5, 0.0, 2.0), 3, True
    ids, _, untempered = drawn(logits, draw, np.arange(3, dtype=np.int32))
    expected = logits[np.arange(3), ids] - np.log(np.exp(logits.astype(np.float64)).sum(axis=1))
    np.testing.assert_allclose(untempered, expected, atol=1e-5)
