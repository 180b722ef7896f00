"""Read a decoder from a GGUF file of the llama family: sizes from its metadata, weights dequantised to float32. Write one.

Only the model. The tokenizer and the chat template of the same file are read in ``stages/text``. Needs the ``gguf`` package
(the extra of that name), imported when a file is read or written.

Layout: GGUF stores a projection as (out, in), we multiply from the right by (in, out). Its q and k rows are permuted for a
rotary embedding that pairs neighbours (2i, 2i + 1); ours pairs halves (i, i + D/2), so the rows are put back.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flax import nnx
from pydantic import ValidationError

from stages.gguf_file import open_gguf
from stages.models.config import ModelConfig, RotaryConfig
from stages.models.layers import rotary_frequencies
from stages.models.names import is_adapter, named_leaves
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
_SAID = {
    "vocab_size", "width", "num_layers", "num_heads", "num_kv_heads", "head_size", "mlp_width", "context_length",
    "norm_epsilon", "tie_embeddings",
}  # fmt: skip
"""Fields of a model that a file is written with; a model that differs from the defaults in another one is not."""
_FREQUENCY_FACTORS = "rope_freqs.weight"
"""What the frequencies of the rotary positions are divided by [D/2]: all that a file says of llama3's scaling."""


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
    found.pop(_FREQUENCY_FACTORS, None)
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


def write_gguf(model: Transformer, path: str | Path, tokens: Sequence[str], stop_id: int) -> None:
    """Write a decoder in float32, with the texts of its tokens: what other engines need to run it on token ids.

    Not its tokenizer: how text is cut into tokens is not in the file, so nobody may ask for that.

    Args:
        model: of the llama line, with no part that such a file cannot say.
        path: of the file.
        tokens: text of each id. One of several characters is a mark, which text cannot spell.
        stop_id: id after which a reply ends.

    Raises:
        ImportError: the ``gguf`` package is not installed.
        ValueError: the model is of another line, or has another number of tokens.
    """
    config, leaves = model.config, named_leaves(nnx.state(model, nnx.Param))
    plain = ModelConfig(**config.model_dump(include=_SAID), rotary=RotaryConfig(base=config.rotary.base))
    if plain != config or len(tokens) != config.vocab_size or any(map(is_adapter, leaves)):
        raise ValueError(
            f"expected a model of the llama line with {len(tokens)} tokens, in float32, without adapters; got {config!r}, in "
            "write_gguf; write other models as a Hugging Face folder"
        )
    try:
        from gguf import GGUFWriter, LlamaFileType, TokenType
    except ImportError as error:
        raise ImportError(f"expected the gguf package to write {path}, got none; install headrace[gguf]") from error
    writer = GGUFWriter(path, "llama")
    for add, value in (
        (writer.add_vocab_size, config.vocab_size), (writer.add_context_length, config.context_length),
        (writer.add_embedding_length, config.width), (writer.add_block_count, config.num_layers),
        (writer.add_feed_forward_length, config.mlp_width), (writer.add_head_count, config.num_heads),
        (writer.add_head_count_kv, config.num_kv_heads), (writer.add_rope_dimension_count, config.head_size),
        (writer.add_key_length, config.head_size), (writer.add_value_length, config.head_size),
        (writer.add_layer_norm_rms_eps, config.norm_epsilon), (writer.add_rope_freq_base, config.rotary.base),
        (writer.add_file_type, LlamaFileType.ALL_F32), (writer.add_tokenizer_model, "llama"),
        (writer.add_token_list, list(tokens)), (writer.add_token_scores, [0.0] * len(tokens)),
        (writer.add_token_types, [TokenType.CONTROL if len(token) > 1 else TokenType.NORMAL for token in tokens]),
        (writer.add_eos_token_id, stop_id), (writer.add_unk_token_id, 0), (writer.add_add_bos_token, False),
    ):  # fmt: skip
        add(value)
    layout = _layout(config)
    for name, leaf in leaves.items():
        for tensor, value in layout(name).write(np.asarray(leaf)):
            writer.add_tensor(tensor, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


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
    width, heads = get("llama.embedding_length"), get("llama.attention.head_count")
    head_size = get("llama.rope.dimension_count", width // heads)
    names = {tensor.name for tensor in reader.tensors}
    return ModelConfig(
        vocab_size=get("llama.vocab_size", len(get("tokenizer.ggml.tokens"))),
        width=width,
        num_layers=get("llama.block_count"),
        num_heads=heads,
        num_kv_heads=get("llama.attention.head_count_kv", heads),
        head_size=head_size,
        mlp_width=get("llama.feed_forward_length"),
        rotary=_read_rotary(reader, get("llama.rope.freq_base", 10_000.0), head_size, path),
        norm_epsilon=get("llama.attention.layer_norm_rms_epsilon"),
        tie_embeddings=_TOP["unembedding_VW"] not in names,
        context_length=get("llama.context_length"),
    )


def _read_rotary(reader: Any, base: float, head_size: int, path: str | Path) -> RotaryConfig:
    """Source: llama.cpp, ``src/llama-model.cpp``, ``load_hparams``: a file that gives a factor and no type means linear."""
    found = {key: field.contents() for key, field in reader.fields.items() if key.startswith("llama.rope.scal")}
    kind = found.get("llama.rope.scaling.type", "linear")
    factor = found.get("llama.rope.scaling.factor", found.get("llama.rope.scale_linear", 0.0)) or 1.0
    stored = next((tensor for tensor in reader.tensors if tensor.name == _FREQUENCY_FACTORS), None)
    linear = kind == "linear" and factor != 1.0
    if kind not in ("none", "linear") or (linear and stored is not None):
        got = f"{kind} by {factor:g}" + (f" and {_FREQUENCY_FACTORS}" if stored is not None else "")
        raise ValueError(
            f"expected rotary positions that are not scaled, or either linearly or by {_FREQUENCY_FACTORS}; got {got}; "
            f"in {path}; use the model's Hugging Face folder"
        )
    if linear:
        return RotaryConfig(base=base, scaling="linear", factor=factor)
    if stored is None:
        return RotaryConfig(base=base)
    config = _llama3_scaling(np.asarray(stored.data, np.float64).ravel(), base, head_size)
    if config is None:
        raise ValueError(
            f"expected {_FREQUENCY_FACTORS} with the {head_size // 2} factors of llama3's scaling; got "
            f"{np.asarray(stored.data).tolist()}; in {path}; use the model's Hugging Face folder"
        )
    return config


def _llama3_scaling(factors: np.ndarray, base: float, head_size: int) -> RotaryConfig | None:
    """The scaling that gives these factors [D/2] within 1e-6; ``None`` where there is none.

    Between its two ends the part of a frequency that is kept is a line over the frequencies, with two parameters. The scaling
    has three, of which one is free: doubling both ends and the original context changes nothing. So the low end is 1, as in
    all published models.
    """
    if factors.shape != (head_size // 2,) or not np.all((factors >= 1.0) & np.isfinite(factors)):
        return None
    factor = float(factors.max())
    if factor == 1.0:
        return RotaryConfig(base=base)
    frequencies = np.asarray(rotary_frequencies(RotaryConfig(base=base), head_size), np.float64)
    kept = (1.0 / factors - 1.0 / factor) / (1.0 - 1.0 / factor)
    ramp = (kept > 1e-6) & (kept < 1.0 - 1e-6)
    if ramp.sum() < 2:
        return None
    slope, start = np.polyfit(frequencies[ramp], kept[ramp], 1)
    high = round(1.0 - 1.0 / start, 3)
    context = round(2.0 * math.pi * slope * (high - 1.0))
    try:
        config = RotaryConfig(base=base, scaling="llama3", factor=factor, high_frequency_factor=high, original_context=context)
    except ValidationError:
        return None
    given = np.asarray(rotary_frequencies(config, head_size), np.float64) / frequencies
    return config if np.abs(given - 1.0 / factors).max() < 1e-6 else None
