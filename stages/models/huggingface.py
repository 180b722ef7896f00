"""Read and write a decoder as a Hugging Face folder: ``config.json`` and safetensors, in one file or in shards.

Only the model: the tokenizer of the same folder is read in ``stages/text``. Configurations are translated in
``huggingface_config.py``. Tensors are mapped into memory and read one at a time.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from flax import nnx
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from stages.models.config import ModelConfig
from stages.models.huggingface_config import config_fields, named_dtype, read_config
from stages.models.names import is_adapter, named_leaves
from stages.models.tensors import Layout, Stored, check_tensors, fill
from stages.models.transformer import Transformer

READABLE = ("F32", "F16", "BF16")
"""Tensor types that are read."""

_FILE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_TOP = {"embedding_VW": "model.embed_tokens.weight", "final_norm_W": "model.norm.weight", "unembedding_VW": "lm_head.weight"}
_BLOCK = {
    "attention_norm_W": "input_layernorm.weight",
    "query.kernel_IO": "self_attn.q_proj.weight",
    "query.bias_O": "self_attn.q_proj.bias",
    "key.kernel_IO": "self_attn.k_proj.weight",
    "key.bias_O": "self_attn.k_proj.bias",
    "value.kernel_IO": "self_attn.v_proj.weight",
    "value.bias_O": "self_attn.v_proj.bias",
    "output.kernel_IO": "self_attn.o_proj.weight",
    "query_norm_D": "self_attn.q_norm.weight",
    "key_norm_D": "self_attn.k_norm.weight",
    "mlp_norm_W": "post_attention_layernorm.weight",
    "mlp.gate.kernel_IO": "mlp.gate_proj.weight",
    "mlp.up.kernel_IO": "mlp.up_proj.weight",
    "mlp.down.kernel_IO": "mlp.down_proj.weight",
    "mlp.router.kernel_IO": "mlp.gate.weight",
}
_NORMS_AFTER = {
    "after_attention_norm_W": "post_attention_layernorm.weight",
    "mlp_norm_W": "pre_feedforward_layernorm.weight",
    "after_mlp_norm_W": "post_feedforward_layernorm.weight",
}
"""With norms after the parts, the name of llama's second norm means another one."""
_EXPERT = {"mlp.gate_EWF": "gate_proj", "mlp.up_EWF": "up_proj", "mlp.down_EFW": "down_proj"}


def describe_huggingface(
    folder: str | Path, dtype: Literal["float32", "bfloat16"] | None = None, *, weights: bool = True
) -> Transformer:
    """The decoder a folder holds, without its weights: shapes only, for checks before anything is loaded.

    Args:
        folder: with ``config.json`` and ``model.safetensors``, or its index and shards.
        dtype: type the parameters are to have; ``None`` takes bfloat16 where all tensors have it, and else float32.
        weights: whether they must be there. False describes a folder without them by its ``config.json`` alone, in the type
            that this names.

    Raises:
        FileNotFoundError: a file is missing; all missing shards are named.
        ValueError: a family or setting that this decoder has not, tensors of a type that is not read, or tensors that are
            missing, unknown or of another shape (all are named).
    """
    if not weights and not any((Path(folder) / name).is_file() for name in (_FILE, _INDEX)):
        alone = read_config(folder, dtype or named_dtype(folder))
        return nnx.eval_shape(lambda: Transformer(alone, nnx.Rngs(0)))
    with _open_tensors(folder) as files:
        slices = {name: file.get_slice(name) for name, file in files.items()}
        kinds = {name: part.get_dtype() for name, part in slices.items()}
        config = read_config(folder, dtype or ("bfloat16" if set(kinds.values()) == {"BF16"} else "float32"))
        found = {name: tuple(part.get_shape()) for name, part in slices.items()}
    if other := [f"{name}: {kind}" for name, kind in kinds.items() if kind not in READABLE]:
        raise ValueError(
            f"expected tensors of the types {', '.join(READABLE)}; got {'; '.join(other)}; in {folder}; "
            "use the model as it was before it was quantised"
        )
    if config.tie_embeddings and found.get(_TOP["unembedding_VW"]) == (config.vocab_size, config.width):
        # Some folders hold the shared matrix twice. The embedding counts, as in transformers.
        del found[_TOP["unembedding_VW"]]
    model = nnx.eval_shape(lambda: Transformer(config, nnx.Rngs(0)))
    check_tensors(model, _layout(config), found, folder)
    return model


def fill_from_huggingface(model: Transformer, folder: str | Path) -> None:
    """Put a folder's weights into the decoder that ``describe_huggingface`` gave for it, in the decoder's dtype."""
    with _open_tensors(folder) as files:
        fill(model, _layout(model.config), lambda name: files[name].get_tensor(name))


def load_huggingface(folder: str | Path, dtype: Literal["float32", "bfloat16"] | None = None) -> Transformer:
    """The decoder a folder holds. Takes and raises what ``describe_huggingface`` does."""
    model = describe_huggingface(folder, dtype)
    fill_from_huggingface(model, folder)
    return model


def write_huggingface(
    model: Transformer, folder: str | Path, *, stop_ids: tuple[int, ...] = (), max_shard_bytes: int = 5_000_000_000
) -> None:
    """Write a folder that transformers loads: the weights in the model's dtype, then ``config.json``.

    The configuration comes last: a folder without it was not written to its end.

    Args:
        model: without adapters.
        folder: made if it is not there.
        stop_ids: ids that end an answer.
        max_shard_bytes: size above which tensors go into further files. A parameter is never cut, nor are a layer's experts.

    Raises:
        FileExistsError: the folder holds a model already.
        ValueError: the model has adapters, or settings that no family of transformers has.
    """
    folder = Path(folder)
    fields = config_fields(model.config, stop_ids)
    parameters = named_leaves(nnx.state(model, nnx.Param))
    if adapters := list(filter(is_adapter, parameters)):
        raise ValueError(f"expected a model without adapters; got {', '.join(adapters)}; in the model; merge them first")
    if present := [path.name for path in folder.glob("*") if path.name == "config.json" or path.suffix == ".safetensors"]:
        raise FileExistsError(
            f"expected a folder without a model; got {', '.join(sorted(present))}; in {folder}; name another folder"
        )
    folder.mkdir(parents=True, exist_ok=True)
    _write_tensors(parameters, _layout(model.config), folder, max_shard_bytes)
    (folder / "config.json").write_text(json.dumps(fields, indent=2) + "\n")


def _write_tensors(parameters: Mapping[str, Any], layout: Layout, folder: Path, max_shard_bytes: int) -> None:
    shards = list(_shards(parameters, max_shard_bytes))
    where: dict[str, str] = {}
    for at, paths in enumerate(shards, 1):
        name = _FILE if len(shards) == 1 else f"model-{at:05}-of-{len(shards):05}.safetensors"
        tensors = dict(part for path in paths for part in layout(path).write(np.asarray(parameters[path])))
        # Other readers of the format take this as the mark of weights in torch's layout.
        save_file(tensors, folder / name, metadata={"format": "pt"})
        where |= dict.fromkeys(tensors, name)
    if len(shards) > 1:
        index = {"metadata": {"total_size": sum(leaf.nbytes for leaf in parameters.values())}, "weight_map": where}
        (folder / _INDEX).write_text(json.dumps(index, indent=2) + "\n")


def _shards(parameters: Mapping[str, Any], max_bytes: int) -> Iterator[list[str]]:
    """Paths of the parameters that go into one file."""
    paths: list[str] = []
    filled = 0
    for path, leaf in parameters.items():
        if paths and filled + leaf.nbytes > max_bytes:
            yield paths
            paths, filled = [], 0
        paths.append(path)
        filled += leaf.nbytes
    yield paths


@contextmanager
def _open_tensors(folder: str | Path) -> Iterator[dict[str, safe_open]]:
    """The open file of each tensor."""
    with ExitStack() as stack:
        files = []
        for path in tensor_files(Path(folder)):
            try:
                files.append(stack.enter_context(safe_open(path, "np")))
            except SafetensorError as error:
                raise ValueError(f"expected a safetensors file; got {error}; in {path}; fetch the file again") from error
        # Files of early releases hold the rotary frequencies, which are worked out from the configuration.
        yield {name: file for file in files for name in file.keys() if not name.endswith("rotary_emb.inv_freq")}  # noqa: SIM118


def tensor_files(folder: Path) -> list[Path]:
    """The files of a folder's weights.

    Raises:
        FileNotFoundError: there are none, or some of those that the index names are missing.
        ValueError: the index is damaged.
    """
    if (folder / _FILE).is_file():
        return [folder / _FILE]
    if not (folder / _INDEX).is_file():
        raise FileNotFoundError(
            f"expected {_FILE} or {_INDEX}; got neither; in {folder}; save the model in the safetensors format"
        )
    names = _indexed_files(folder / _INDEX)
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise FileNotFoundError(
            f"expected the {len(names)} shards that {_INDEX} names; got all but {', '.join(missing)}; in {folder}; "
            "fetch the missing files"
        )
    return [folder / name for name in names]


def _indexed_files(index: Path) -> list[str]:
    try:
        names = sorted({*json.loads(index.read_text())["weight_map"].values()})
        if not names or not all(isinstance(name, str) for name in names):
            raise ValueError("a weight_map of no files")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"expected an index of tensors with a weight_map from their names to files; got {type(error).__name__}: {error}; "
            f"in {index}; fetch the file again"
        ) from error
    return names


def _layout(config: ModelConfig) -> Layout:
    names = {**_BLOCK, **(_NORMS_AFTER if config.norms_after else {})}

    def stored(path: str) -> Stored:
        if path in _TOP:
            return Stored((_TOP[path],))
        _, layer, part = path.split(".", 2)
        inside = f"model.layers.{layer}"
        if part in _EXPERT and config.experts is not None:
            experts = range(config.experts.num_experts)
            return Stored(tuple(f"{inside}.mlp.experts.{at}.{_EXPERT[part]}.weight" for at in experts), turned=True)
        return Stored((f"{inside}.{names[part]}",), turned=part.endswith("kernel_IO"))

    return stored
