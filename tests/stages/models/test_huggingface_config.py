"""``config.json`` of published models, as release 4 of transformers wrote them, against configurations worked out by hand."""

import json
from pathlib import Path

import pytest

from stages.models.config import ExpertsConfig, ModelConfig, RotaryConfig
from stages.models.huggingface_config import config_fields, read_config

SMOLLM2 = {
    "model_type": "llama", "hidden_act": "silu", "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
    "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152, "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5, "rope_theta": 100000, "rope_scaling": None, "tie_word_embeddings": True, "attention_bias": False,
    "mlp_bias": False, "torch_dtype": "bfloat16", "rope_interleaved": False, "is_llama_config": True, "pretraining_tp": 1,
}  # fmt: skip
LLAMA3 = {
    "model_type": "llama", "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": True,
    "rope_scaling": {
        "factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
}  # fmt: skip
MISTRAL = {
    "model_type": "mistral", "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 2,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "sliding_window": 4096, "tie_word_embeddings": False,
}  # fmt: skip
QWEN2 = {
    "model_type": "qwen2", "hidden_act": "silu", "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
    "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936, "max_position_embeddings": 32768,
    "max_window_layers": 21, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "sliding_window": 32768,
    "use_sliding_window": False, "tie_word_embeddings": True,
}  # fmt: skip
QWEN3 = {
    "model_type": "qwen3", "hidden_act": "silu", "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "attention_bias": False,
    "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000, "rope_scaling": None,
    "sliding_window": None, "use_sliding_window": False, "max_window_layers": 28, "tie_word_embeddings": True,
}  # fmt: skip
QWEN3_MOE = {
    "model_type": "qwen3_moe", "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 6,
    "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "attention_bias": False,
    "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "rope_scaling": None,
    "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": True,
    "decoder_sparse_step": 2, "mlp_only_layers": [1], "sliding_window": None, "use_sliding_window": False,
    "tie_word_embeddings": False,
}  # fmt: skip
GEMMA2 = {
    "model_type": "gemma2", "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304,
    "intermediate_size": 9216, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
    "vocab_size": 256000, "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
    "query_pre_attn_scalar": 144, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "sliding_window": 4096,
    "cache_implementation": "hybrid",
}  # fmt: skip
GEMMA3 = {
    "model_type": "gemma3_text", "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152, "intermediate_size": 6912,
    "num_hidden_layers": 7, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 262144,
    "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1000000, "rope_local_base_freq": 10000,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "query_pre_attn_scalar": 256, "attn_logit_softcapping": None,
    "final_logit_softcapping": None, "sliding_window": 512, "sliding_window_pattern": 6, "cache_implementation": "hybrid",
}  # fmt: skip

LLAMA_FIELDS = {
    "vocab_size": 128256, "width": 2048, "num_layers": 16, "num_heads": 32, "num_kv_heads": 8, "head_size": 64,
    "mlp_width": 8192, "context_length": 131072, "norm_epsilon": 1e-5,
}  # fmt: skip
QWEN3_FIELDS = {
    "vocab_size": 151936, "width": 1024, "num_layers": 28, "num_heads": 16, "num_kv_heads": 8, "head_size": 128,
    "mlp_width": 3072, "context_length": 40960, "norm_epsilon": 1e-6, "head_norms": True, "rotary": RotaryConfig(base=1e6),
}  # fmt: skip
GEMMA_FIELDS = {
    "norm_epsilon": 1e-6, "norm_offset": 1, "norms_after": True, "embedding_scale": True, "activation": "gelu_tanh",
    "tie_embeddings": True, "head_size": 256,
}  # fmt: skip

PUBLISHED = {
    "SmolLM2-135M": (SMOLLM2, ModelConfig(
        vocab_size=49152, width=576, num_layers=30, num_heads=9, num_kv_heads=3, head_size=64, mlp_width=1536,
        context_length=8192, norm_epsilon=1e-5, rotary=RotaryConfig(base=1e5),
    )),
    "Llama-3.2-1B": (LLAMA3, ModelConfig(
        **LLAMA_FIELDS, rotary=RotaryConfig(base=5e5, scaling="llama3", factor=32.0, original_context=8192),
    )),
    "Mistral": (MISTRAL, ModelConfig(
        vocab_size=32000, width=4096, num_layers=2, num_heads=32, num_kv_heads=8, head_size=128, mlp_width=14336,
        context_length=32768, norm_epsilon=1e-5, windows=(4096, 4096), tie_embeddings=False,
    )),
    "Qwen2.5-0.5B": (QWEN2, ModelConfig(
        vocab_size=151936, width=896, num_layers=24, num_heads=14, num_kv_heads=2, head_size=64, mlp_width=4864,
        context_length=32768, norm_epsilon=1e-6, rotary=RotaryConfig(base=1e6), projection_bias=True,
    )),
    "Qwen2.5 with windows": ({**QWEN2, "use_sliding_window": True, "sliding_window": 512}, ModelConfig(
        vocab_size=151936, width=896, num_layers=24, num_heads=14, num_kv_heads=2, head_size=64, mlp_width=4864,
        context_length=32768, norm_epsilon=1e-6, rotary=RotaryConfig(base=1e6), projection_bias=True,
        windows=(None,) * 21 + (512,) * 3,
    )),
    "Qwen3-0.6B": (QWEN3, ModelConfig(**QWEN3_FIELDS)),
    "Qwen3 of experts": (QWEN3_MOE, ModelConfig(**{
        **QWEN3_FIELDS, "width": 2048, "num_layers": 6, "num_heads": 32, "num_kv_heads": 4, "mlp_width": 6144,
        "tie_embeddings": False,
        "experts": ExpertsConfig(num_experts=128, per_token=8, width=768, dense_layers=(0, 1, 2, 4)),
    })),
    "gemma-2": (GEMMA2, ModelConfig(
        **GEMMA_FIELDS, vocab_size=256000, width=2304, num_layers=4, num_heads=8, num_kv_heads=4, mlp_width=9216,
        context_length=8192, query_scale=1 / 12, attention_cap=50.0, logit_cap=30.0, windows=(4096, None, 4096, None),
    )),
    "gemma-3": (GEMMA3, ModelConfig(
        **GEMMA_FIELDS, vocab_size=262144, width=1152, num_layers=7, num_heads=4, num_kv_heads=1, mlp_width=6912,
        context_length=32768, head_norms=True, windows=(512,) * 5 + (None, 512),
        rotary=RotaryConfig(base=1e6, scaling="linear", factor=8.0), window_rotary=RotaryConfig(base=1e4),
    )),
}  # fmt: skip


def put(folder: Path, fields: object) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(fields))
    return folder


def read(folder: Path, fields: object) -> ModelConfig:
    return read_config(put(folder, fields), "float32")


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configurations_are_read(name, tmp_path):
    fields, wanted = PUBLISHED[name]
    assert read(tmp_path, fields) == wanted


@pytest.mark.parametrize("name", PUBLISHED)
def test_written_configuration_reads_back_as_it_was(name, tmp_path):
    fields, wanted = PUBLISHED[name]
    written = config_fields(wanted)
    assert written["model_type"] == fields["model_type"]
    assert read(tmp_path, written) == wanted


@pytest.mark.parametrize("name", PUBLISHED)
def test_written_configuration_says_the_same_in_the_spellings_of_release_4(name, tmp_path):
    _, wanted = PUBLISHED[name]
    written = config_fields(wanted)
    for key in ("rope_parameters", "num_local_experts"):
        written.pop(key, None)
    assert read(tmp_path, written) == wanted
    assert written["torch_dtype"] == written["dtype"] == "float32"


def test_ids_that_end_an_answer_are_written_and_no_others(tmp_path):
    written = config_fields(PUBLISHED["SmolLM2-135M"][1], stop_ids=(2, 7))
    assert written["eos_token_id"] == [2, 7]
    assert written["bos_token_id"] is written["pad_token_id"] is None
    assert config_fields(PUBLISHED["gemma-3"][1])["eos_token_id"] is None


def test_all_settings_that_do_not_fit_are_named_in_one_error(tmp_path):
    changes = {
        "hidden_act": "relu", "attention_bias": True, "mlp_bias": True, "quantization_config": {"quant_method": "gptq"},
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0},
    }  # fmt: skip
    with pytest.raises(ValueError, match="expected a model of the family llama, mistral, qwen2") as caught:
        read(tmp_path, {**SMOLLM2, **changes})
    text = str(caught.value)
    assert "activation: expected silu or gelu_pytorch_tanh, got 'relu'" in text
    assert "attention_bias: True; mlp_bias: True" in text
    assert "quantization_config: {'quant_method': 'gptq'}" in text
    assert "rope_type: expected default, linear, llama3, got 'yarn'" in text
    assert f"in {tmp_path / 'config.json'}; use another model" in text


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"model_type": "mixtral", "quantization_config": {}}, "got model_type: 'mixtral'; in"),
        ({"model_type": "gpt2", "quantization_config": {"bits": 4}}, "'gpt2'; quantization_config: no quantised"),
        ({"model_type": "gemma3", "text_config": {}}, "'gemma3' (its language model alone"),
        ({"hidden_size": 8}, "model_type: None"),
        ([], "model_type: None"),
        ({**SMOLLM2, "hidden_size": "wide"}, "'hidden_size' expected int, got str"),
        ({**SMOLLM2, "hidden_size": 575}, "hidden size (575) is not a multiple of the number of attention heads (9)"),
        ({**SMOLLM2, "num_key_value_heads": 2}, "expected num_heads to be a multiple of num_kv_heads"),
        ({**SMOLLM2, "partial_rotary_factor": 0.5}, "partial_rotary_factor: expected 1, got 0.5"),
        ({**GEMMA2, "use_bidirectional_attention": True}, "use_bidirectional_attention: True"),
        ({**GEMMA2, "layer_types": ["full_attention"] * 3 + ["linear_attention"]}, "linear_attention"),
        ({**GEMMA3, "attn_logit_softcapping": 50.0}, "attn_logit_softcapping: 50.0"),
    ],
)  # fmt: skip
def test_setting_that_does_not_fit_is_named(fields, text, tmp_path):
    with pytest.raises(ValueError, match=r"expected a model of the family .* in .*config\.json; use another model") as caught:
        read(tmp_path, fields)
    assert text in str(caught.value)


def test_folder_without_a_configuration_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"expected the file config\.json; got none; in .*; give the folder of a model"):
        read_config(tmp_path, "float32")


def test_text_that_is_no_json_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"got no JSON \(Expecting property name"):
        read_config(tmp_path, "float32")


def test_settings_that_no_family_has_are_not_written():
    odd = PUBLISHED["Qwen3-0.6B"][1].model_copy(update={"logit_cap": 20.0})
    with pytest.raises(
        ValueError, match=r"got one that qwen3, the closest, cannot hold: logit_cap=20\.0; in the configuration"
    ):
        config_fields(odd)
