"""``config.json`` of a Hugging Face folder against ``ModelConfig``: the families, both ways, and what does not fit.

The file itself is read and written by the configuration classes of transformers: they know the defaults of each family and the
spellings of earlier releases. No tensors here, see ``huggingface.py``. transformers is imported inside of functions, because
that takes a second.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from stages.models.config import ExpertsConfig, ModelConfig, RotaryConfig

_GEMMA = {"norm_offset": 1, "norms_after": True, "embedding_scale": True}


@dataclass(frozen=True)
class _Family:
    """What a ``model_type`` stands for.

    Attributes:
        architecture: class of transformers that runs it.
        windows: whether no layer has a window, each has, or ``layer_types`` tells.
        fixed: fields of ``ModelConfig`` that ``config.json`` does not hold.
    """

    architecture: str
    windows: Literal["none", "each", "by_layer"] = "none"
    fixed: Mapping[str, Any] = field(default_factory=dict)


_FAMILIES = {
    "llama": _Family("LlamaForCausalLM"),
    "mistral": _Family("MistralForCausalLM", "each"),
    "qwen2": _Family("Qwen2ForCausalLM", "by_layer", {"projection_bias": True}),
    "qwen3": _Family("Qwen3ForCausalLM", "by_layer", {"head_norms": True}),
    "qwen3_moe": _Family("Qwen3MoeForCausalLM", "each", {"head_norms": True}),
    "gemma2": _Family("Gemma2ForCausalLM", "by_layer", _GEMMA),
    "gemma3_text": _Family("Gemma3ForCausalLM", "by_layer", {**_GEMMA, "head_norms": True}),
}
"""By ``model_type``; of two that could hold a model the first is written."""

_ACTIVATIONS: dict[str, Literal["silu", "gelu_tanh"]] = {"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh"}
_SCALINGS: dict[str, Literal["none", "linear", "llama3"]] = {"default": "none", "linear": "linear", "llama3": "llama3"}
_ABSENT = ("quantization_config", "attention_bias", "mlp_bias", "use_bidirectional_attention")
"""Settings for which we have nothing: they must be missing, null or false."""
_LAYER_TYPES = ("full_attention", "sliding_attention")


def read_config(folder: str | Path, dtype: Literal["float32", "bfloat16"]) -> ModelConfig:
    """The decoder that the ``config.json`` of a folder describes.

    Source: the configuration and modelling files of transformers 5.24.

    Args:
        folder: the folder.
        dtype: type of the parameters; the one the file names is not looked at.

    Raises:
        FileNotFoundError: there is no ``config.json``.
        ValueError: it is no JSON, or asks for what this decoder has not; all faults are named.
    """
    path = Path(folder) / "config.json"
    found, faults = _load(path)
    if found is not None:
        faults += _faults(found)
    if found is not None and not faults:
        try:
            return _ours(found, dtype)
        except ValidationError as error:
            faults = [f"{'.'.join(map(str, fault['loc'])) or 'sizes'}: {fault['msg']}" for fault in error.errors()]
    raise ValueError(
        f"expected a model of the family {', '.join(_FAMILIES)}, without what is named here; got {'; '.join(faults)}; "
        f"in {path}; use another model, or one saved without these settings"
    )


def named_dtype(folder: str | Path) -> Literal["float32", "bfloat16"]:
    """The type that the ``config.json`` of a folder names: bfloat16, or float32 for any other and where it is no JSON.

    That of the tensors may be another; this is for folders without them.
    """
    try:
        written = json.loads((Path(folder) / "config.json").read_text())
    except (OSError, ValueError):  # told by ``read_config``
        return "float32"
    named = written.get("dtype") or written.get("torch_dtype") if isinstance(written, dict) else None
    return "bfloat16" if named == "bfloat16" else "float32"


def config_fields(config: ModelConfig, stop_ids: tuple[int, ...] = ()) -> dict[str, Any]:
    """What goes into ``config.json``; earlier releases of transformers (4) find their spellings beside those of release 5.

    Args:
        config: the decoder.
        stop_ids: ids that end an answer, ``eos_token_id``. The ids of beginning and padding are null: they are the tokenizer's.

    Raises:
        ValueError: no family holds these settings; those that the closest one lacks are named.
    """
    from huggingface_hub.errors import StrictDataclassError

    lacking: dict[str, list[str]] = {}
    for kind, family in _FAMILIES.items():
        try:
            theirs = _theirs(config, kind, family)
        except StrictDataclassError as error:
            lacking[kind] = [" ".join(str(error).split())]
            continue
        lacking[kind] = _differences(config, _ours(theirs, config.dtype))
        if not lacking[kind]:
            ids = {"bos_token_id": None, "pad_token_id": None, "eos_token_id": list(stop_ids) or None}
            return {**_written(theirs), **ids}
    closest = min(lacking, key=lambda kind: len(lacking[kind]))
    raise ValueError(
        f"expected a model of the family {', '.join(_FAMILIES)}; got one that {closest}, the closest, cannot hold: "
        f"{'; '.join(lacking[closest])}; in the configuration of the model; save it as a checkpoint of ours"
    )


def _classes() -> Mapping[str, Any]:
    """The configuration classes of transformers, by ``model_type``."""
    # Without this, importing transformers prints a notice about torch, which nothing here needs.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from transformers import CONFIG_MAPPING

    return CONFIG_MAPPING


def _load(path: Path) -> tuple[Any | None, list[str]]:
    """The configuration as transformers has it, or what is wrong with it."""
    from huggingface_hub.errors import StrictDataclassError

    if not path.is_file():
        raise FileNotFoundError(f"expected the file config.json; got none; in {path.parent}; give the folder of a model")
    try:
        written = json.loads(path.read_text())
    except ValueError as error:
        return None, [f"no JSON ({error})"]
    kind = written.get("model_type") if isinstance(written, dict) else None
    if kind not in _FAMILIES:
        hint = " (its language model alone, saved as Gemma3ForCausalLM, is read)" if kind == "gemma3" else ""
        more = ["quantization_config: no quantised model is read"] if kind and written.get("quantization_config") else []
        return None, [f"model_type: {kind!r}{hint}", *more]
    try:
        return _classes()[kind].from_dict(written), []
    except (StrictDataclassError, ValueError, TypeError, KeyError, AttributeError) as error:
        return None, [" ".join(str(error).split())]


def _faults(found: Any) -> list[str]:
    """Settings that this decoder has not."""
    kind, faults = found.model_type, []
    faults += [f"{name}: {value!r}" for name in _ABSENT if (value := getattr(found, name, None))]
    if (activation := _activation(found)) not in _ACTIVATIONS:
        faults.append(f"activation: expected {' or '.join(_ACTIVATIONS)}, got {activation!r}")
    for rope in _ropes(found):
        if rope["rope_type"] not in _SCALINGS:
            faults.append(f"rope_type: expected {', '.join(_SCALINGS)}, got {rope['rope_type']!r}")
        if rope.get("partial_rotary_factor") not in (None, 1.0):
            faults.append(f"partial_rotary_factor: expected 1, got {rope['partial_rotary_factor']}")
    if _FAMILIES[kind].windows == "by_layer":
        faults += [f"layer_types: unknown {other!r}" for other in sorted(set(found.layer_types) - set(_LAYER_TYPES))]
    # transformers reads the setting and then leaves it out of attention: what was meant cannot be told.
    if kind == "gemma3_text" and found.attn_logit_softcapping is not None:
        faults.append(f"attn_logit_softcapping: {found.attn_logit_softcapping}")
    return list(dict.fromkeys(faults))


def _ours(found: Any, dtype: Literal["float32", "bfloat16"]) -> ModelConfig:
    family, heads = _FAMILIES[found.model_type], found.num_attention_heads
    whole, windowed = map(_rotary, _ropes(found))
    head_size = getattr(found, "head_dim", None) or found.hidden_size // heads
    scalar = getattr(found, "query_pre_attn_scalar", head_size)
    return ModelConfig(
        vocab_size=found.vocab_size,
        width=found.hidden_size,
        num_layers=found.num_hidden_layers,
        num_heads=heads,
        num_kv_heads=found.num_key_value_heads,
        head_size=head_size,
        mlp_width=found.intermediate_size,
        context_length=found.max_position_embeddings,
        dtype=dtype,
        tie_embeddings=found.tie_word_embeddings,
        norm_epsilon=found.rms_norm_eps,
        rotary=whole,
        window_rotary=None if windowed == whole else windowed,
        windows=_windows(found, family),
        query_scale=None if scalar == head_size else scalar**-0.5,
        attention_cap=getattr(found, "attn_logit_softcapping", None),
        logit_cap=getattr(found, "final_logit_softcapping", None),
        activation=_ACTIVATIONS[_activation(found)],
        experts=_experts(found) if found.model_type == "qwen3_moe" else None,
        **family.fixed,
    )


def _activation(found: Any) -> str:
    return getattr(found, "hidden_activation", None) or found.hidden_act


def _ropes(found: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Rotary settings of layers that see everything, and of windowed ones."""
    ropes = found.rope_parameters
    whole, windowed = (ropes.get(kind, ropes) for kind in _LAYER_TYPES)
    return whole, windowed


def _rotary(rope: dict[str, Any]) -> RotaryConfig:
    base, scaling = rope["rope_theta"], _SCALINGS[rope["rope_type"]]
    if scaling == "none":
        return RotaryConfig(base=base)
    if scaling == "linear":
        return RotaryConfig(base=base, scaling=scaling, factor=rope["factor"])
    return RotaryConfig(
        base=base,
        scaling=scaling,
        factor=rope["factor"],
        low_frequency_factor=rope["low_freq_factor"],
        high_frequency_factor=rope["high_freq_factor"],
        original_context=rope["original_max_position_embeddings"],
    )


def _windows(found: Any, family: _Family) -> tuple[int | None, ...] | None:
    size = None if family.windows == "none" else found.sliding_window
    if size is None:
        return None
    if family.windows == "each":
        return (size,) * found.num_hidden_layers
    windows = tuple(size if kind == "sliding_attention" else None for kind in found.layer_types)
    return windows if any(windows) else None


def _experts(found: Any) -> ExpertsConfig | None:
    layers, step = range(found.num_hidden_layers), found.decoder_sparse_step
    dense = tuple(layer for layer in layers if layer in found.mlp_only_layers or (layer + 1) % step)
    if found.num_experts == 0 or len(dense) == len(layers):
        return None
    return ExpertsConfig(
        num_experts=found.num_experts,
        per_token=found.num_experts_per_tok,
        width=found.moe_intermediate_size,
        normalised=found.norm_topk_prob,
        dense_layers=dense,
    )


def _theirs(config: ModelConfig, kind: str, family: _Family) -> Any:
    """The configuration of a family that comes closest to ours."""
    is_gemma = kind.startswith("gemma")
    activation = next(name for name, ours in _ACTIVATIONS.items() if ours == config.activation)
    fields = dict(
        architectures=[family.architecture],
        dtype=config.dtype,
        vocab_size=config.vocab_size,
        hidden_size=config.width,
        intermediate_size=config.mlp_width,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_kv_heads,
        head_dim=config.head_size,
        max_position_embeddings=config.context_length,
        rms_norm_eps=config.norm_epsilon,
        tie_word_embeddings=config.tie_embeddings,
        rope_parameters=_rope_parameters(config, kind),
        **{"hidden_activation" if is_gemma else "hidden_act": activation},
        **dict(_window_fields(config, kind, family)),
    )
    if is_gemma:
        fields |= {"attn_logit_softcapping": config.attention_cap, "final_logit_softcapping": config.logit_cap}
        fields |= {"query_pre_attn_scalar": round(config.score_scale**-2)}
    if kind == "qwen3_moe" and (experts := config.experts) is not None:
        fields |= {"num_experts": experts.num_experts, "num_experts_per_tok": experts.per_token}
        fields |= {"moe_intermediate_size": experts.width, "norm_topk_prob": experts.normalised}
        fields |= {"mlp_only_layers": list(experts.dense_layers), "decoder_sparse_step": 1}
    return _classes()[kind](**fields)


def _rope_parameters(config: ModelConfig, kind: str) -> dict[str, Any]:
    whole = _rope(config.rotary)
    if kind != "gemma3_text":
        return whole
    return dict(zip(_LAYER_TYPES, (whole, _rope(config.window_rotary or config.rotary)), strict=True))


def _rope(rotary: RotaryConfig) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_theta": rotary.base}
    rope["rope_type"] = next(name for name, ours in _SCALINGS.items() if ours == rotary.scaling)
    if rotary.scaling != "none":
        rope["factor"] = rotary.factor
    if rotary.scaling == "llama3":
        rope |= {"low_freq_factor": rotary.low_frequency_factor, "high_freq_factor": rotary.high_frequency_factor}
        rope["original_max_position_embeddings"] = rotary.original_context
    return rope


def _window_fields(config: ModelConfig, kind: str, family: _Family) -> Iterator[tuple[str, Any]]:
    if family.windows == "none":
        return
    windows = config.windows or (None,)
    size = max((window for window in windows if window is not None), default=None)
    yield "sliding_window", size
    if kind.startswith("qwen"):
        yield "use_sliding_window", size is not None
    if family.windows == "by_layer":
        yield "layer_types", [_LAYER_TYPES[config.window(layer) is not None] for layer in range(config.num_layers)]


def _differences(wanted: ModelConfig, got: ModelConfig) -> list[str]:
    pairs = ((name, getattr(wanted, name), getattr(got, name)) for name in ModelConfig.model_fields)
    return [f"{name}={ours}" for name, ours, theirs in pairs if ours != theirs]


def _written(theirs: Any) -> dict[str, Any]:
    """The fields of a configuration, with the names by which transformers 4 knows them beside those of release 5."""
    fields = {key: value for key, value in theirs.to_diff_dict().items() if not key.startswith("_")}
    whole, windowed = _ropes(theirs)
    fields |= {"torch_dtype": fields["dtype"], "rope_theta": whole["rope_theta"]}
    if whole["rope_type"] != "default":
        fields["rope_scaling"] = {key: value for key, value in whole.items() if key != "rope_theta"}
    if theirs.model_type == "gemma3_text":
        fields["rope_local_base_freq"] = windowed["rope_theta"]
    if theirs.model_type == "qwen3_moe":
        fields["num_experts"] = theirs.num_experts
    return fields
