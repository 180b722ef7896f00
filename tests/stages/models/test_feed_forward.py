"""The mixture of experts against each token worked through on its own, and what its neighbours may not change."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from stages.models.config import ExpertsConfig, ModelConfig
from stages.models.feed_forward import Experts

NUM, PER_TOKEN, WIDTH, HIDDEN = 7, 3, 8, 6
NUM_TOKENS = 16


def mixture(*, normalised: bool = True, dtype: str = "float32") -> Experts:
    experts = ExpertsConfig(num_experts=NUM, per_token=PER_TOKEN, width=HIDDEN, normalised=normalised)
    config = ModelConfig(
        vocab_size=8, width=WIDTH, num_layers=1, num_heads=1, num_kv_heads=1, head_size=4, mlp_width=4, context_length=8,
        dtype=dtype, experts=experts,
    )  # fmt: skip
    return Experts(config, experts, jax.random.key(0))


def vectors(num: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(num, WIDTH)).astype(np.float32)


def by_hand(layer: Experts, x_MW: np.ndarray, *, normalised: bool = True) -> np.ndarray:
    """Each token and each of its experts in a loop, float64."""
    router, gate, up, down = (
        np.asarray(part[...], np.float64) for part in (layer.router.kernel_IO, layer.gate_EWF, layer.up_EWF, layer.down_EFW)
    )
    result = np.zeros((len(x_MW), WIDTH))
    for at, x in enumerate(x_MW.astype(np.float64)):
        scores = np.exp(x @ router)
        chosen = np.argsort(-scores)[:PER_TOKEN]
        total = scores[chosen].sum() if normalised else scores.sum()
        for expert in chosen:
            gated = x @ gate[expert]
            hidden = gated / (1 + np.exp(-gated)) * (x @ up[expert])
            result[at] += scores[expert] / total * (hidden @ down[expert])
    return result


def apply(layer: Experts, x_MW: np.ndarray) -> np.ndarray:
    graphdef, parameters = nnx.split(layer, nnx.Param)
    return np.asarray(run(graphdef, parameters, x_MW))


@functools.partial(jax.jit, static_argnums=0)
def run(graphdef, parameters, x_MW):
    return nnx.merge(graphdef, parameters)(x_MW)


@pytest.mark.slow
@pytest.mark.parametrize("normalised", [True, False])
def test_each_token_goes_through_its_likeliest_experts(normalised):
    layer, x_MW = mixture(normalised=normalised), vectors(NUM_TOKENS)
    np.testing.assert_allclose(apply(layer, x_MW), by_hand(layer, x_MW, normalised=normalised), atol=1e-6)


@pytest.mark.slow
def test_rows_of_tokens_are_worked_through_as_one_list():
    layer, x_MW = mixture(), vectors(NUM_TOKENS)
    rows = apply(layer, x_MW.reshape(2, -1, WIDTH))
    np.testing.assert_allclose(rows.reshape(x_MW.shape), by_hand(layer, x_MW), atol=1e-6)


def test_experts_that_nobody_or_everybody_chose_are_no_exception():
    """All tokens are alike, so three experts have all of the work and four have none."""
    layer, x_MW = mixture(), np.repeat(vectors(1), NUM_TOKENS, axis=0)
    got = apply(layer, x_MW)
    np.testing.assert_allclose(got, by_hand(layer, x_MW), atol=1e-6)
    assert (got == got[0]).all()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_token_does_not_depend_on_its_neighbours_to_the_bit(dtype):
    """Other neighbours and another place: the grouped product sorts tokens by expert, so both move it about."""
    layer, kept = mixture(dtype=dtype), vectors(4).astype(dtype)
    first = apply(layer, np.concatenate([kept, vectors(NUM_TOKENS - 4, 1).astype(dtype)]))[:4]
    for seed in range(2, 8):
        others = vectors(NUM_TOKENS, seed).astype(dtype)
        places = np.random.default_rng(seed).permutation(NUM_TOKENS)[:4]
        others[places] = kept
        np.testing.assert_array_equal(apply(layer, others)[places], first)


@pytest.mark.slow
def test_gradient_agrees_with_differences():
    """Along a random direction in all parameters and the input at once, by central differences."""
    graphdef, parameters = nnx.split(mixture(), nnx.Param)
    at, draw = (parameters, jnp.asarray(vectors(NUM_TOKENS))), np.random.default_rng(2)
    weights = jnp.asarray(vectors(NUM_TOKENS, 1))
    direction = jax.tree.map(lambda leaf: jnp.asarray(draw.normal(size=leaf.shape).astype(np.float32)), at)

    @jax.jit
    def loss(at, step):
        return jnp.sum(run(graphdef, *jax.tree.map(lambda leaf, way: leaf + step * way, at, direction)) * weights)

    slope, step = jax.grad(loss, argnums=1)(at, np.float32(0)), np.float32(1e-3)
    np.testing.assert_allclose(slope, (loss(at, step) - loss(at, -step)) / (2 * step), rtol=2e-3)
