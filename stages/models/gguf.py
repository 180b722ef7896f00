"""Read a decoder from a GGUF file of the llama family: sizes from its metadata, weights dequantised to float32.

Only the model. The tokenizer and the chat template of the same file are read in ``stages/text``. Needs the ``gguf`` package
(the extra of that name), imported when a file is read.

Layout: GGUF stores a projection as (out, in), we multiply from the right by (in, out). Its q and k rows are permuted for a
rotary embedding that pairs neighbours (2i, 2i + 1); ours pairs halves (i, i + D/2), so the rows are put back.

Axes: N heads, D head size, I input size.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from stages.gguf_file import open_gguf
from stages.models.config import ModelConfig
from stages.models.transformer import Transformer

_TOP = {"embedding_VW": "token_embd.weight", "final_norm_W": "output_norm.weight", "unembedding_VW": "output.weight"}
_BLOCK = {
    "attention_norm_LW": "attn_norm",
    "query_LWQ": "attn_q",
    "key_LWP": "attn_k",
    "value_LWP": "attn_v",
    "output_LQW": "attn_output",
    "mlp_norm_LW": "ffn_norm",
    "gate_LWF": "ffn_gate",
    "up_LWF": "ffn_up",
    "down_LFW": "ffn_down",
}


def describe_gguf(path: str | Path) -> Transformer:
    """The decoder a file holds, without its weights: shapes only, for checks before anything is loaded.

    Raises:
        ImportError: the ``gguf`` package is not installed.
        FileNotFoundError: there is no such file.
        ValueError: another architecture, or tensors that are missing, unknown or of another shape (all are named).
    """
    reader = open_gguf(Path(path))
    config = _read_config(reader, path)
    model = nnx.eval_shape(lambda: Transformer(config, nnx.Rngs(0)))
    _check(_wanted(model), {tensor.name: tensor for tensor in reader.tensors}, config, path)
    return model


def fill_from_gguf(model: Transformer, path: str | Path) -> None:
    """Put a file's weights into the decoder that ``describe_gguf`` gave for it.

    Source: llama.cpp, ``convert_hf_to_gguf.py``, for names and the permutation of q and k.
    """
    tensors = {tensor.name: tensor for tensor in open_gguf(Path(path)).tensors}
    structure = jax.tree.structure(nnx.state(model, nnx.Param))
    leaves = [_read(name.split(".")[-1], tensors, model.config) for name in _wanted(model)]
    nnx.update(model, jax.tree.unflatten(structure, leaves))


def load_gguf(path: str | Path) -> Transformer:
    """The decoder a file holds. Raises what ``describe_gguf`` does."""
    model = describe_gguf(path)
    fill_from_gguf(model, path)
    return model


def _wanted(model: Transformer) -> dict[str, tuple[int, ...]]:
    """Shapes by name, in the order of the leaves."""
    parameters = nnx.state(model, nnx.Param)
    return {jax.tree_util.keystr(at[:-1], simple=True, separator="."): leaf.shape for at, leaf in _flatten(parameters)}


def unpermute(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """Put the rows [N * D, I] of a query or key projection from GGUF's neighbouring pairs into halves."""
    split_N2DI = rows.reshape(num_heads, -1, 2, rows.shape[-1])
    return split_N2DI.swapaxes(1, 2).reshape(rows.shape)


def _flatten(tree: Any) -> list[tuple[Any, Any]]:
    return jax.tree_util.tree_flatten_with_path(tree)[0]


def _read_config(reader: Any, path: str | Path) -> ModelConfig:
    def get(key: str, default: Any = None) -> Any:
        field = reader.fields.get(key)
        if field is None and default is None:
            raise ValueError(f"expected the metadata key {key}; got none; in {path}; convert the model again")
        return default if field is None else field.contents()

    architecture = get("general.architecture")
    if architecture != "llama":
        raise ValueError(
            f"expected a file of the llama architecture; got {architecture!r}; in {path}; use a llama-family model"
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
        rope_base=get("llama.rope.freq_base", 10_000.0),
        norm_epsilon=get("llama.attention.layer_norm_rms_epsilon"),
        tie_embeddings=_TOP["unembedding_VW"] not in names,
        context_length=get("llama.context_length"),
    )


def _names(parameter: str, num_layers: int) -> list[str]:
    """The tensors a parameter is made of, in order."""
    if parameter in _TOP:
        return [_TOP[parameter]]
    return [f"blk.{layer}.{_BLOCK[parameter]}.weight" for layer in range(num_layers)]


def _check(wanted: dict[str, tuple[int, ...]], tensors: dict[str, Any], config: ModelConfig, path: str | Path) -> None:
    problems, known = [], set()
    for at, shape in wanted.items():
        parameter = at.split(".")[-1]
        expected = shape if parameter in _TOP else shape[:0:-1]
        for name in _names(parameter, config.num_layers):
            known.add(name)
            # GGUF lists the fastest axis first.
            found = tuple(int(size) for size in tensors[name].shape[::-1]) if name in tensors else None
            if found != expected:
                problems.append(f"{name}: expected {list(expected)}, got {'none' if found is None else list(found)}")
    problems += [f"{name}: unknown" for name in tensors if name not in known]
    if problems:
        raise ValueError(
            f"expected the tensors of a llama decoder with {config.num_layers} layers; got "
            + "; ".join(problems)
            + f"; in {path}; use a file whose metadata and tensors agree"
        )


def _read(parameter: str, tensors: dict[str, Any], config: ModelConfig) -> jax.Array:
    from gguf import dequantize

    arrays = []
    for name in _names(parameter, config.num_layers):
        rows = dequantize(tensors[name].data, tensors[name].tensor_type).astype(np.float32, copy=False)
        if parameter == "query_LWQ":
            rows = unpermute(rows, config.num_heads)
        elif parameter == "key_LWP":
            rows = unpermute(rows, config.num_kv_heads)
        arrays.append(rows if parameter in _TOP else rows.T)
    return jnp.asarray(arrays[0] if parameter in _TOP else np.stack(arrays))
