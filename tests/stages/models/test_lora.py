"""Adapters of small decoders."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from pydantic import ValidationError

from stages.models.cache import empty_cache
from stages.models.config import ExpertsConfig, ModelConfig
from stages.models.lora import LoraConfig, add_lora, has_adapters, merged, trained
from stages.models.names import named_leaves
from stages.models.tensors import Stored, fill
from stages.models.transformer import Transformer

DENSE = ModelConfig(
    vocab_size=19, width=16, num_layers=1, num_heads=4, num_kv_heads=2, head_size=4, mlp_width=24, context_length=12
)
EXPERTS = ExpertsConfig(num_experts=3, per_token=2, width=8, dense_layers=(1,))
MIXTURE = DENSE.model_copy(update={"experts": EXPERTS})
IDS = np.random.default_rng(0).integers(0, 19, (2, 12)).astype(np.int32)
POSITIONS = np.arange(12, dtype=np.int32)[None].repeat(2, 0)
ONES = np.ones((2, 12), np.int32)

pytestmark = pytest.mark.slow  # Each model compiles its forward pass.


@nnx.jit
def forward(model: Transformer) -> tuple[jax.Array, jax.Array]:
    """Logits over packed rows, and over a cache."""
    hidden, _ = model.extend(empty_cache(model.config, 2, 12), IDS, np.zeros(2, np.int32), np.full(2, 12, np.int32))
    return model(IDS, POSITIONS, ONES), model.logits(hidden)


def adapted(config: ModelConfig = DENSE, deviation: float = 0.15) -> Transformer:
    """A model whose adapters add something."""
    model = Transformer(config, nnx.Rngs(0))
    add_lora(model, LoraConfig(rank=2, alpha=8.0))
    state = nnx.state(model, nnx.LoRAParam)
    keys = jax.random.split(jax.random.key(1), len(jax.tree.leaves(state)))
    drawn = [deviation * jax.random.normal(key, leaf.shape) for key, leaf in zip(keys, jax.tree.leaves(state), strict=True)]
    nnx.update(
        model,
        jax.tree.map(lambda leaf, new: new.astype(leaf.dtype), state, jax.tree.unflatten(jax.tree.structure(state), drawn)),
    )
    return model


def test_fresh_adapters_change_no_bit():
    base, model = Transformer(DENSE, nnx.Rngs(0)), Transformer(DENSE, nnx.Rngs(0))
    add_lora(model, LoraConfig(rank=2))
    for ours, theirs in zip(forward(model), forward(base), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("config", [DENSE, MIXTURE], ids=["dense", "mixture"])
def test_merged_adapters_give_what_they_gave_beside_the_kernels(config):
    """Packed and cached; and the adapters do add something, more than a hundred times the difference allowed."""
    model = adapted(config)
    folded = merged(model)
    assert not has_adapters(folded)
    assert has_adapters(model)
    for ours, theirs in zip(forward(folded), forward(model), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    plain = forward(Transformer(config, nnx.Rngs(0)))
    assert max(float(jnp.abs(a - b).max()) for a, b in zip(forward(model), plain, strict=True)) > 1e-2


def test_merging_adds_scale_times_the_product_to_a_kernel():
    model = adapted()
    linear, folded = model.blocks[0].mlp.down, merged(model).blocks[0].mlp.down
    product = np.asarray(linear.lora_down_IR[...], np.float64) @ np.asarray(linear.lora_up_RO[...], np.float64)
    np.testing.assert_allclose(folded.kernel_IO[...], np.asarray(linear.kernel_IO[...]) + 8.0 / 2 * product, atol=1e-6)


def test_merged_bfloat16_agrees_within_its_precision():
    """A kernel is rounded to eight bits of mantissa after folding; sums of 16 and 24 such products, of a size of about 1."""
    model = adapted(DENSE.model_copy(update={"dtype": "bfloat16"}))
    x = jax.random.normal(jax.random.key(2), (32, 16), "bfloat16")
    beside, folded = model.blocks[0].mlp(x), merged(model).blocks[0].mlp(x)
    assert beside.dtype == folded.dtype == jnp.bfloat16
    spread = float(jnp.std(beside.astype(jnp.float32)))
    np.testing.assert_allclose(folded.astype(jnp.float32), beside.astype(jnp.float32), atol=0.1 * spread)


def test_a_model_is_asked_what_is_trained():
    base, model = Transformer(DENSE, nnx.Rngs(0)), adapted()
    assert trained(base) is nnx.Param
    names = list(named_leaves(nnx.state(model, trained(model))))
    assert len(names) == 2 * 7
    assert all(name.rpartition(".")[2] in ("lora_down_IR", "lora_up_RO") for name in names)


def test_named_modules_alone_get_adapters_with_the_axes_of_their_kernels():
    model = Transformer(DENSE, nnx.Rngs(0))
    add_lora(model, LoraConfig(rank=3, modules=("key", "down")))
    key, down = model.blocks[0].key, model.blocks[0].mlp.down
    assert len(jax.tree.leaves(nnx.state(model, nnx.LoRAParam))) == 2 * 2
    assert (key.lora_down_IR.shape, key.lora_up_RO.shape) == ((16, 3), (3, 8))
    assert key.lora_up_RO.get_metadata()["axes"] == (None, "kv_heads")
    assert down.lora_down_IR.get_metadata()["axes"] == ("mlp", None)


def test_experts_are_refused_with_their_layers_and_left_out_when_nothing_is_named():
    model = Transformer(MIXTURE.model_copy(update={"num_layers": 2}), nnx.Rngs(0))
    with pytest.raises(ValueError, match=r"got blocks\.0\.gate, blocks\.0\.down, .* pass modules=\('query',\)"):
        add_lora(model, LoraConfig(modules=("query", "gate", "down")))
    assert not has_adapters(model)
    add_lora(model, LoraConfig(rank=2))
    assert model.blocks[0].query.lora_up_RO is not None
    assert model.blocks[1].mlp.gate.lora_up_RO is not None


def test_unknown_modules_and_second_adapters_are_refused():
    with pytest.raises(ValidationError, match=r"'query', 'key', 'value', 'output', 'gate', 'up' or 'down'"):
        LoraConfig(modules=("q_proj",))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="got one that has some"):
        add_lora(adapted(), LoraConfig())


def test_a_described_model_gets_adapters_that_filling_leaves_alone():
    """Weights come later; what was drawn for the adapters is there before and after."""
    model, source = nnx.eval_shape(lambda: Transformer(DENSE, nnx.Rngs(0))), Transformer(DENSE, nnx.Rngs(3))
    add_lora(model, LoraConfig(rank=2))
    before = np.asarray(model.blocks[0].query.lora_down_IR[...])
    tensors = {path: np.asarray(leaf) for path, leaf in named_leaves(nnx.state(source, nnx.Param)).items()}
    fill(model, lambda path: Stored((path,)), tensors.__getitem__)
    np.testing.assert_array_equal(model.blocks[0].query.lora_down_IR[...], before)
    assert before.std() > 0.1
    for ours, theirs in zip(forward(model), forward(source), strict=True):
        np.testing.assert_array_equal(ours, theirs)
