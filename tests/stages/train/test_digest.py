import jax.numpy as jnp
import numpy as np
import pytest

from stages.train.digest import digest_of

TREE = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": {"c": np.float32(0.0), "d": np.zeros(0, np.float32)}}


def with_leaf(leaf):
    return {**TREE, "a": leaf}


def test_equal_trees_have_one_digest_wherever_their_arrays_lie():
    whole = digest_of(TREE)
    assert whole == digest_of({"b": TREE["b"], "a": jnp.asarray(TREE["a"])}) == digest_of(with_leaf(TREE["a"].T.copy().T))
    assert len(whole) == 16


@pytest.mark.parametrize(
    "leaf",
    [
        np.nextafter(TREE["a"], np.float32(9)),
        np.where(TREE["a"] == 0, np.float32(-0.0), TREE["a"]),
        TREE["a"][::-1],
        TREE["a"].reshape(3, 2),
        TREE["a"].view(np.int32),
        TREE["a"].astype(jnp.bfloat16),
    ],
    ids=["next numbers", "sign of zero", "order", "shape", "type", "half"],
)
def test_whatever_differs_in_a_bit_has_another(leaf):
    assert digest_of(with_leaf(leaf)) != digest_of(TREE)


def test_names_count_and_types_that_numpy_does_not_know_have_a_digest():
    assert digest_of({"z": TREE["a"]}) != digest_of({"a": TREE["a"]})
    assert len(digest_of({"a": jnp.ones((2,), jnp.bfloat16), "n": jnp.int32(3)})) == 16
