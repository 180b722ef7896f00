import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stages.losses.value import value_loss, value_sums


@pytest.mark.parametrize(
    ("value", "old", "wanted", "clip", "loss", "slope", "binds"),
    [
        (2.0, 0.0, 3.0, None, 0.5, -1.0, False),
        (0.1, 0.0, 3.0, 0.2, 4.205, -2.9, False),
        (2.0, 0.0, 3.0, 0.2, 3.92, 0.0, True),
        (-2.0, 0.0, 3.0, 0.2, 12.5, -5.0, False),
        (-2.0, 0.0, -3.0, 0.5, 3.125, 0.0, True),
    ],
)
def test_a_value_gains_nothing_by_going_farther_than_the_clip(value, old, wanted, clip, loss, slope, binds):
    """Worked out by hand: half of the larger of the two squares."""

    def of(at: jax.Array):
        return value_loss(at, jnp.full((1, 1), old), jnp.full((1, 1), wanted), clip)

    at = jnp.full((1, 1), value)
    found, bound = of(at)
    assert float(found[0, 0]) == pytest.approx(loss, rel=1e-6)
    assert float(jax.grad(lambda v: jnp.sum(of(v)[0]))(at)[0, 0]) == pytest.approx(slope, rel=1e-6)
    assert bool(bound[0, 0]) is binds


def test_explained_variance_follows_from_the_means_of_the_sums(make_tokens):
    tokens = make_tokens(0)
    mask = np.asarray(tokens.mask)
    values, returns = (np.asarray(array, np.float64)[mask] for array in (tokens.values, tokens.returns))
    sums = value_sums(tokens.values, tokens.returns, tokens.mask)
    mean = {name: float(each) / mask.sum() for name, each in sums.items()}
    of_errors = mean["value_error_squared"] - mean["value_error"] ** 2
    of_returns = mean["returns_squared"] - mean["returns"] ** 2
    assert 1 - of_errors / of_returns == pytest.approx(1 - np.var(returns - values) / np.var(returns), rel=1e-4)
