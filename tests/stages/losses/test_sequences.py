import jax.numpy as jnp
import numpy as np

from stages.losses.sequences import sequence_means, sequence_sums, spread


def test_sums_and_means_are_those_of_each_sequence_of_each_row(make_tokens):
    tokens = make_tokens(0)
    values, mask, segments = (np.asarray(array) for array in (tokens.logprobs, tokens.mask, tokens.segments))
    sums_BS = np.asarray(sequence_sums(tokens.logprobs, tokens.mask, tokens.segments))
    means_BT = np.asarray(sequence_means(tokens.logprobs, tokens.mask, tokens.segments))
    assert sums_BS.shape == (3, 10)
    for row, column in np.ndindex(mask.shape):
        inside = mask[row] & (segments[row] == segments[row, column])
        np.testing.assert_allclose(sums_BS[row, segments[row, column]], values[row][inside].sum(), rtol=1e-5, atol=1e-6)
        expected = values[row][inside].mean() if inside.any() else 0.0
        np.testing.assert_allclose(means_BT[row, column], expected, rtol=1e-5, atol=1e-6)


def test_what_is_masked_is_not_looked_at():
    values_BT, mask_BT = jnp.asarray([[jnp.nan, 2.0, 4.0, jnp.inf]]), jnp.asarray([[False, True, True, False]])
    numbers_BT = jnp.asarray([[1, 1, 1, 2]])
    assert sequence_means(values_BT, mask_BT, numbers_BT).tolist() == [[3.0, 3.0, 3.0, 0.0]]
    assert spread(sequence_sums(values_BT, mask_BT, numbers_BT), numbers_BT).tolist() == [[6.0, 6.0, 6.0, 0.0]]
