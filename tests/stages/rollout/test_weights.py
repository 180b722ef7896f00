import numpy as np
import pytest
from flax import nnx

from stages.models.config import ModelConfig
from stages.models.transformer import Transformer
from stages.rollout.weights import matching_leaves


def test_leaves_come_in_the_order_expected_whatever_the_order_given():
    expected = {"a": np.zeros(2, np.float32), "b": {"c": np.zeros(3, np.float32)}}
    given = {"b": {"c": np.full(3, 2, np.float32)}, "a": np.full(2, 1, np.float32)}
    assert [leaf[0] for leaf in matching_leaves(expected, given)] == [1, 2]


def test_adapters_may_come_alone_and_the_rest_is_kept():
    """All of them: one that is missing, or a base parameter beside them, makes it a tree of everything."""
    expected = {"a": {"kernel": np.zeros(2), "lora_down": np.zeros(1), "lora_up": np.zeros(1)}, "b": np.zeros(1)}
    down, up = np.ones(1), np.full(1, 2.0)
    kept, first, second, other = matching_leaves(expected, {"a": {"lora_up": up, "lora_down": down}})
    assert (kept, other) == (None, None)
    assert first is down
    assert second is up
    with pytest.raises(ValueError, match=r"got a\.lora_up: missing; in engine\.load"):
        matching_leaves(expected, {"a": {"lora_down": down}})
    with pytest.raises(ValueError, match=r"got a\.kernel: missing; in engine\.load"):
        matching_leaves(expected, {"a": {"lora_up": up, "lora_down": down}, "b": down})
    with pytest.raises(ValueError, match=r"a\.lora_up: unknown"):
        matching_leaves({"b": np.zeros(1)}, {"a": {"lora_up": up}})


def test_value_projection_is_named_whole():
    """Its name is that of the last key of a variable, which is left out of names."""
    config = ModelConfig(
        vocab_size=5, width=4, num_layers=1, num_heads=1, num_kv_heads=1, head_size=2, mlp_width=4, context_length=8
    )
    state = nnx.state(Transformer(config, nnx.Rngs(0)), nnx.Param)
    given = nnx.to_pure_dict(state)
    del given["blocks"][0]["value"]
    with pytest.raises(ValueError, match=r"got blocks\.0\.value\.kernel_IO: missing; in engine\.load"):
        matching_leaves(state, given)


def test_all_differences_are_named_in_one_error():
    expected = {"a": np.zeros(2, np.float32), "b": np.zeros(3, np.float32), "c": np.zeros(1, np.float32)}
    given = {"a": np.zeros(4, np.float32), "b": np.zeros(3, np.float16), "d": 3}
    with pytest.raises(ValueError, match="old version stays in force") as caught:
        matching_leaves(expected, given)
    for part in (
        "a: expected float32[2], got float32[4]",
        "b: expected float32[3], got float16[3]",
        "c: missing",
        "d: unknown",
    ):
        assert part in str(caught.value)


def test_state_and_the_plain_dict_made_of_it_match():
    config = ModelConfig(
        vocab_size=5, width=4, num_layers=1, num_heads=1, num_kv_heads=1, head_size=4, mlp_width=4, context_length=4
    )
    state = nnx.split(Transformer(config, nnx.Rngs(0)), nnx.Param)[1]
    assert len(matching_leaves(state, nnx.to_pure_dict(state))) == 11
