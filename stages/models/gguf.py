"""Read a decoder from a GGUF file of the llama family: sizes from its metadata, weights dequantised to float32.

Only the model. The tokenizer and the chat template of the same file are read in ``stages/text``. Needs the ``gguf`` package
(the extra of that name), imported when a file is read.

Layout: GGUF stores a projection as (out, in), we multiply from the right by (in, out). Its q and k rows are permuted for a
rotary embedding that pairs neighbours (2i, 2i + 1); ours pairs halves (i, i + D/2), so the rows are put back.
"""

from pathlib import Path
from typing import Any

import numpy as np
from flax import nnx

from stages.gguf_file import open_gguf
from stages.models.config import ModelConfig, RotaryConfig
from stages.models.tensors import Layout, Stored, check_tensors, fill
from stages.models.transformer import Transformer

READABLE = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0")
"""Tensor types that are read. The gguf package dequantises more, but what is not checked against a file is not promised."""

_TOP = {"embedding_VW": "token_embd.weight", "final_norm_W": "output_norm.weight", "unembedding_VW": "output.weight"}
_BLOCK = {
    "attention_norm_W": "attn_norm",
    "query.kernel_IO": "attn_q",
    "key.kernel_IO": "attn_k",
    "value.kernel_IO": "attn_v",
    "output.kernel_IO": "attn_output",
    "mlp_norm_W": "ffn_norm",
    "mlp.gate.kernel_IO": "ffn_gate",
    "mlp.up.kernel_IO": "ffn_up",
    "mlp.down.kernel_IO": "ffn_down",
}


def describe_gguf(path: str | Path) -> Transformer:
    """The decoder a file holds, without its weights: shapes only, for checks before anything is loaded.

    Raises:
        ImportError: the ``gguf`` package is not installed.
        FileNotFoundError: there is no such file.
        ValueError: another architecture, tensors of a type that is not read, or tensors that are missing, unknown or of another
            shape (all are named).
    """
    reader = open_gguf(Path(path))
    config = _read_config(reader, path)
    model = nnx.eval_shape(lambda: Transformer(config, nnx.Rngs(0)))
    # GGUF lists the fastest axis first.
    found = {tensor.name: tuple(int(size) for size in tensor.shape[::-1]) for tensor in reader.tensors}
    check_tensors(model, _layout(config), found, path)
    other = [
        f"{tensor.name}: {tensor.tensor_type.name}" for tensor in reader.tensors if tensor.tensor_type.name not in READABLE
    ]
    if other:
        raise ValueError(
            f"expected tensors of the types {', '.join(READABLE)}; got {'; '.join(other)}; in {path}; "
            "use a file quantised to one of these, or the model's Hugging Face folder"
        )
    return model


def fill_from_gguf(model: Transformer, path: str | Path) -> None:
    """Put a file's weights into the decoder that ``describe_gguf`` gave for it.

    Source: llama.cpp, ``convert_hf_to_gguf.py``, for names and the permutation of q and k.
    """
    from gguf import dequantize

    tensors = {tensor.name: tensor for tensor in open_gguf(Path(path)).tensors}

    def tensor(name: str) -> np.ndarray:
        return dequantize(tensors[name].data, tensors[name].tensor_type)

    fill(model, _layout(model.config), tensor)


def load_gguf(path: str | Path) -> Transformer:
    """The decoder a file holds. Raises what ``describe_gguf`` does."""
    model = describe_gguf(path)
    fill_from_gguf(model, path)
    return model


def _layout(config: ModelConfig) -> Layout:
    heads = {"query.kernel_IO": config.num_heads, "key.kernel_IO": config.num_kv_heads}

    def stored(path: str) -> Stored:
        if path in _TOP:
            return Stored((_TOP[path],))
        _, layer, part = path.split(".", 2)
        return Stored((f"blk.{layer}.{_BLOCK[part]}.weight",), turned=part.endswith("kernel_IO"), paired_heads=heads.get(part))

    return stored


def _read_config(reader: Any, path: str | Path) -> ModelConfig:
    def get(key: str, default: Any = None) -> Any:
        field = reader.fields.get(key)
        if field is None and default is None:
            raise ValueError(f"expected the metadata key {key}; got none; in {path}; convert the model again")
        return default if field is None else field.contents()

    architecture = get("general.architecture")
    if architecture != "llama":
        raise ValueError(
            f"expected a file of the llama architecture; got {architecture!r}; in {path}; use a llama-family model, or the "
            "model's Hugging Face folder"
        )
    if "llama.rope.scaling.type" in reader.fields and get("llama.rope.scaling.type") != "none":
        raise ValueError(
            f"expected rotary positions without scaling; got {get('llama.rope.scaling.type')!r}; in {path}; "
            "use the model's Hugging Face folder"
        )
    width, heads = get("llama.embedding_length"), get("llama.attention.head_count")
    names = {tensor.name for tensor in reader.tensors}
    return ModelConfig(
        vocab_size=get("llama.vocab_size", len(get("tokenizer.ggml.tokens"))),
        width=width,
        num_layers=get("llama.block_count"),
        num_heads=heads,
        num_kv_heads=get("llama.attention.head_count_kv", heads),
        head_size=get("llama.rope.dimension_count", width // heads),
        mlp_width=get("llama.feed_forward_length"),
        rotary=RotaryConfig(base=get("llama.rope.freq_base", 10_000.0)),
        norm_epsilon=get("llama.attention.layer_norm_rms_epsilon"),
        tie_embeddings=_TOP["unembedding_VW"] not in names,
        context_length=get("llama.context_length"),
    )
