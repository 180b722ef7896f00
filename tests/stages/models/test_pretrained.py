"""A model named by a path: the folder or the file is read by whoever knows it, and both give the very weights."""

from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx

from stages.models.pretrained import describe_model, fill_model


def test_a_folder_is_described_by_shapes_and_filled_with_its_own_tensors(pretrained_folder: Path) -> None:
    from safetensors.numpy import load_file

    model = describe_model(pretrained_folder)
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(nnx.state(model, nnx.Param)))
    fill_model(model, pretrained_folder)
    stored = load_file(pretrained_folder / "model.safetensors")["model.layers.1.self_attn.q_proj.weight"]
    np.testing.assert_array_equal(model.blocks[1].query.kernel_IO[...], stored.T)


def test_a_file_is_read_as_gguf(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    (tmp_path / "model.gguf").write_bytes(b"no such thing")
    with pytest.raises(ValueError, match="expected a GGUF file, got"):
        describe_model(tmp_path / "model.gguf")
