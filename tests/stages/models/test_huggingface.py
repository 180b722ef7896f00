"""Folders of our own making: what is read back, what is refused. Against transformers itself: ``tests/parity``."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file

from stages.models.config import ExpertsConfig, ModelConfig
from stages.models.huggingface import describe_huggingface, fill_from_huggingface, load_huggingface, write_huggingface
from stages.models.transformer import Transformer

SIZES = {
    "vocab_size": 24, "width": 8, "num_layers": 2, "num_heads": 2, "num_kv_heads": 1, "head_size": 6, "mlp_width": 10,
    "context_length": 32,
}  # fmt: skip
DENSE = ModelConfig(**SIZES, head_norms=True, tie_embeddings=False)
MIXED = ModelConfig(
    **SIZES, head_norms=True, tie_embeddings=False, dtype="bfloat16",
    experts=ExpertsConfig(num_experts=3, per_token=2, width=4, dense_layers=(0,)),
)  # fmt: skip
TIED = ModelConfig(**SIZES, head_norms=True)


def filled(config: ModelConfig) -> Transformer:
    """Every parameter its own random numbers, so that a mix-up shows."""
    draw = np.random.default_rng(0)
    graphdef, shapes = nnx.split(nnx.eval_shape(lambda: Transformer(config, nnx.Rngs(0))), nnx.Param)
    return nnx.merge(graphdef, jax.tree.map(lambda leaf: jnp.asarray(draw.normal(size=leaf.shape).astype(leaf.dtype)), shapes))


def assert_same(one: Transformer, other: Transformer) -> None:
    assert one.config == other.config
    for got, wanted in zip(*(jax.tree.leaves(nnx.state(model, nnx.Param)) for model in (one, other)), strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)


@pytest.fixture(scope="module")
def dense() -> Transformer:
    return filled(DENSE)


@pytest.fixture
def folder(dense, tmp_path) -> Path:
    write_huggingface(dense, tmp_path / "model")
    return tmp_path / "model"


def change(folder: Path, edit) -> None:
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize("config", [DENSE, MIXED, TIED], ids=["dense", "mixed bfloat16", "tied"])
def test_folder_gives_back_the_model_it_was_written_from(config, tmp_path):
    model = filled(config)
    write_huggingface(model, tmp_path / "deep" / "model")
    assert_same(load_huggingface(tmp_path / "deep" / "model"), model)


def test_tensors_are_stored_as_torch_multiplies(dense, folder):
    tensors = load_file(folder / "model.safetensors")
    np.testing.assert_array_equal(
        tensors["model.layers.1.self_attn.q_proj.weight"], np.asarray(dense.blocks[1].query.kernel_IO[...]).T
    )
    np.testing.assert_array_equal(tensors["lm_head.weight"], dense.unembedding_VW[...])


def test_experts_are_stored_one_by_one(tmp_path):
    model = filled(MIXED)
    write_huggingface(model, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    down_EFW = np.asarray(model.blocks[1].mlp.down_EFW[...])
    np.testing.assert_array_equal(tensors["model.layers.1.mlp.experts.2.down_proj.weight"], down_EFW[2].T)
    assert tensors["model.layers.1.mlp.gate.weight"].shape == (3, 8)
    assert tensors["model.layers.0.mlp.gate_proj.weight"].shape == (10, 8)


def test_description_has_shapes_and_no_arrays(dense, folder):
    described = describe_huggingface(folder)
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(nnx.state(described, nnx.Param)))
    fill_from_huggingface(described, folder)
    assert_same(described, dense)


def test_large_model_is_cut_into_shards(dense, tmp_path):
    write_huggingface(dense, tmp_path, max_shard_bytes=1500)
    sizes = {path.name: sum(part.nbytes for part in load_file(path).values()) for path in tmp_path.glob("*.safetensors")}
    assert len(sizes) > 2
    assert max(sizes.values()) <= 1500
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(sizes.values())
    assert all(name in load_file(tmp_path / file) for name, file in index["weight_map"].items())
    assert_same(load_huggingface(tmp_path), dense)


def test_missing_shards_are_all_named(dense, tmp_path):
    write_huggingface(dense, tmp_path, max_shard_bytes=1500)
    gone = sorted(tmp_path.glob("*.safetensors"))[1:3]
    for path in gone:
        path.unlink()
    with pytest.raises(FileNotFoundError, match=f"got all but {gone[0].name}, {gone[1].name}; in .*; fetch the missing files"):
        describe_huggingface(tmp_path)


def test_all_faults_of_the_tensors_are_named_in_one_error(folder):
    def edit(tensors):
        del tensors["model.layers.1.mlp.up_proj.weight"]
        tensors["model.layers.0.self_attn.k_proj.weight"] = np.zeros((4, 8), np.float32)
        tensors["model.layers.0.self_attn.q_proj.bias"] = np.zeros(12, np.float32)

    change(folder, edit)
    with pytest.raises(ValueError, match="expected the tensors of a decoder with 2 layers") as caught:
        load_huggingface(folder)
    text = str(caught.value)
    assert "model.layers.1.mlp.up_proj.weight: expected [10, 8], got none" in text
    assert "model.layers.0.self_attn.k_proj.weight: expected [6, 8], got [4, 8]" in text
    assert "model.layers.0.self_attn.q_proj.bias: unknown" in text


def test_tied_projection_that_is_stored_all_the_same_is_accepted(tmp_path):
    model = filled(TIED)
    write_huggingface(model, tmp_path)
    change(tmp_path, lambda tensors: tensors.update({"lm_head.weight": tensors["model.embed_tokens.weight"]}))
    assert_same(load_huggingface(tmp_path), model)
    change(tmp_path, lambda tensors: tensors.update({"lm_head.weight": np.zeros((25, 8), np.float32)}))
    with pytest.raises(ValueError, match=r"lm_head\.weight: unknown"):
        load_huggingface(tmp_path)


def test_rotary_frequencies_of_early_releases_are_ignored(dense, folder):
    change(folder, lambda tensors: tensors.update({"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(3, np.float32)}))
    assert_same(load_huggingface(folder), dense)


@pytest.mark.parametrize(
    ("stored", "asked", "given"),
    [
        (ml_dtypes.bfloat16, None, "bfloat16"),
        (ml_dtypes.bfloat16, "float32", "float32"),
        (np.float16, None, "float32"),
        (np.float32, "bfloat16", "bfloat16"),
    ],
)
def test_weights_have_the_type_asked_for_or_that_of_the_file(stored, asked, given, dense, folder):
    change(folder, lambda tensors: tensors.update({name: part.astype(stored) for name, part in tensors.items()}))
    model = load_huggingface(folder, asked)
    assert model.config.dtype == given
    wanted = np.asarray(dense.embedding_VW[...]).astype(stored).astype(given)
    np.testing.assert_array_equal(model.embedding_VW[...], wanted)


def test_folder_of_two_types_is_read_in_the_wider_one(folder):
    def edit(tensors):
        tensors["lm_head.weight"] = tensors["lm_head.weight"].astype(ml_dtypes.bfloat16)

    change(folder, edit)
    assert describe_huggingface(folder).config.dtype == "float32"


def test_types_that_are_not_read_are_all_named(folder):
    def edit(tensors):
        tensors["lm_head.weight"] = tensors["lm_head.weight"].astype(ml_dtypes.float8_e4m3fn)
        tensors["model.norm.weight"] = tensors["model.norm.weight"].astype(np.int8)

    change(folder, edit)
    with pytest.raises(ValueError, match="expected tensors of the types F32, F16, BF16") as caught:
        describe_huggingface(folder)
    assert "lm_head.weight: F8_E4M3" in str(caught.value)
    assert "model.norm.weight: I8" in str(caught.value)


def test_broken_file_is_refused(folder):
    (folder / "model.safetensors").write_bytes(b"no tensors here, only text")
    with pytest.raises(ValueError, match=r"expected a safetensors file; .* in .*model\.safetensors; fetch the file again"):
        describe_huggingface(folder)


def test_folder_without_safetensors_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"expected model\.safetensors or .*; got neither; in .*; save the model in"):
        describe_huggingface(tmp_path)


def test_folder_that_holds_a_model_is_not_written_over(dense, folder):
    with pytest.raises(FileExistsError, match=r"got config\.json, model\.safetensors; in .*; name another folder"):
        write_huggingface(dense, folder)


def test_model_with_adapters_is_not_written(tmp_path):
    model = filled(DENSE)
    model.blocks[0].query.lora_down_IR = nnx.LoRAParam(jnp.zeros((8, 2)))
    model.blocks[0].query.lora_up_RO = nnx.LoRAParam(jnp.zeros((2, 12)))
    with pytest.raises(ValueError, match=r"got blocks\.0\.query\.lora_down_IR, blocks\.0\.query\.lora_up_RO; .* merge them"):
        write_huggingface(model, tmp_path / "model")
    assert not (tmp_path / "model").exists()
