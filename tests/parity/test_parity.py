"""Every family against transformers: logits and greedy continuations of tiny checkpoints that ``make_golden.py`` wrote.

A case is a folder under ``golden``: the checkpoint as transformers saves it, and ``golden.npz`` with two rows of ids, their
float32 logits and the greedy continuation of the first 16 ids of each.
"""

import asyncio
import functools
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file
from transformers import AutoConfig

from stages.models.cache import empty_cache
from stages.models.huggingface import load_huggingface, write_huggingface
from stages.models.huggingface_config import read_config
from stages.models.transformer import Transformer
from stages.policy import SampleRequest
from stages.rollout.config import EngineConfig
from stages.rollout.engine import Engine

GOLDEN = Path(__file__).parent / "golden"
CASES = ("llama_tied", "llama3", "llama_bf16", "qwen2", "qwen3", "qwen3_moe", "qwen3_moe_raw", "gemma2", "gemma3")
STEPPED = ("llama3", "qwen2", "qwen3", "qwen3_moe", "gemma2", "gemma3")
"""One of each family: the others differ from these in nothing that a cache or the engine is concerned with."""
TOLERANCE = 1e-4
PROMPT = 16
CHUNK = 8
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""Compiling takes most of the time of these tests. The engine compiles as it always does."""

DENSE_LAYERS = ("decoder_sparse_step", "mlp_only_layers")
"""Two ways to name the same layers; we write the second."""


@functools.cache
def model_of(case: str) -> Transformer:
    return load_huggingface(GOLDEN / case, dtype="float32")


@functools.cache
def golden(case: str) -> dict[str, np.ndarray]:
    return dict(np.load(GOLDEN / case / "golden.npz"))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_packed_forward_gives_the_logits_of_transformers(case):
    ids = golden(case)["ids"]
    rows, length = ids.shape
    # Both rows as segments of one packed row, so that segments are seen to be apart.
    positions = np.tile(np.arange(length, dtype=np.int32), rows)
    segments = np.repeat(np.arange(1, rows + 1, dtype=np.int32), length)
    graphdef, parameters = nnx.split(model_of(case), nnx.Param)
    forward = jax.jit(lambda parameters, *inputs: nnx.merge(graphdef, parameters)(*inputs), compiler_options=QUICK)
    logits = forward(parameters, ids.reshape(1, -1), positions[None], segments[None])
    np.testing.assert_allclose(logits.reshape(golden(case)["logits"].shape), golden(case)["logits"], atol=TOLERANCE, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("case", STEPPED)
def test_cached_steps_give_the_logits_of_transformers(case):
    """Two full chunks, then one real token a step; windows and positions of each family are taken over from the cache."""
    ids, model = golden(case)["ids"], model_of(case)
    graphdef, parameters = nnx.split(model, nnx.Param)

    @functools.partial(jax.jit, donate_argnums=1, compiler_options=QUICK)
    def step(parameters, cache, ids_RC, starts_R, lengths_R):
        model = nnx.merge(graphdef, parameters)
        hidden, cache = model.extend(cache, ids_RC, starts_R, lengths_R)
        return model.logits(hidden), cache

    cache, parts = empty_cache(model.config, *ids.shape), []
    starts = [*range(0, PROMPT, CHUNK), *range(PROMPT, ids.shape[1])]
    for start, end in zip(starts, [*starts[1:], ids.shape[1]], strict=True):
        new = np.zeros((len(ids), CHUNK), np.int32)
        new[:, : end - start] = ids[:, start:end]
        logits, cache = step(parameters, cache, new, *(np.full(len(ids), n, np.int32) for n in (start, end - start)))
        parts.append(logits[:, : end - start])
    np.testing.assert_allclose(np.concatenate(parts, axis=1), golden(case)["logits"], atol=TOLERANCE, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("case", STEPPED)
def test_engine_continues_greedily_as_transformers_does(case):
    wanted = golden(case)["greedy"]

    def request(row: int) -> SampleRequest:
        return SampleRequest(
            ids=golden(case)["ids"][row, :PROMPT], max_tokens=wanted.shape[1], stop_ids=(), temperature=0.0,
            key=(0, 0, row, 0, 0), session=f"row {row}",
        )  # fmt: skip

    async def sample_all() -> list[list[int]]:
        config = EngineConfig(slots=2, context_length=32, prefill_rows=2, prefill_chunk=CHUNK)
        async with Engine(model_of(case), config) as engine:
            samples = await asyncio.gather(*(engine.sample(request(row)) for row in range(len(wanted))))
            return [sample.ids.tolist() for sample in samples]

    assert asyncio.run(sample_all()) == wanted.tolist()


@pytest.mark.parametrize("case", CASES)
def test_checkpoint_is_written_back_to_the_bit(case, tmp_path):
    write_huggingface(load_huggingface(GOLDEN / case), tmp_path)
    got, wanted = (load_file(folder / "model.safetensors") for folder in (tmp_path, GOLDEN / case))
    assert got.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert got[name].dtype == tensor.dtype
        np.testing.assert_array_equal(got[name], tensor)


@pytest.mark.parametrize("case", CASES)
def test_configuration_written_back_is_the_same_to_transformers(case, tmp_path):
    """All of it but what no forward pass reads, and names of special tokens, which a model of ours does not hold."""
    write_huggingface(load_huggingface(GOLDEN / case), tmp_path)
    got, wanted = (AutoConfig.from_pretrained(folder).to_dict() for folder in (tmp_path, GOLDEN / case))
    names = {name for name in got.keys() | wanted.keys() if got.get(name) != wanted.get(name)}
    assert names <= {"_name_or_path", "initializer_range", "head_dim", "max_window_layers", *DENSE_LAYERS}
    assert read_config(tmp_path, "float32") == read_config(GOLDEN / case, "float32")
    assert got["head_dim"] == wanted.get("head_dim", wanted["hidden_size"] // wanted["num_attention_heads"])


def test_shards_hold_what_one_file_holds():
    """``llama_sharded`` is ``llama3``, saved in four files."""
    states = (nnx.state(load_huggingface(GOLDEN / case), nnx.Param) for case in ("llama_sharded", "llama3"))
    for got, wanted in zip(*map(jax.tree.leaves, states), strict=True):
        np.testing.assert_array_equal(got, wanted)
