"""The engine over llama.cpp's own server, where ``make bench-peers`` has built it: greedy, it says what our engine says."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
from flax import nnx

from graphs.bench.engines.llama import LlamaProcess
from stages.agents.guards import sample_problem
from stages.models.config import ModelConfig
from stages.models.gguf import write_gguf
from stages.models.transformer import Transformer
from stages.policy import SampleRequest
from stages.records import Weights
from stages.rollout.config import EngineConfig
from stages.rollout.engine import Engine
from stages.rollout.http.config import HttpConfig
from stages.rollout.http.engine import HttpEngine

PROGRAM = Path(__file__).parents[4] / ".cache" / "peers" / "build" / "bin" / "llama-server"
TOKENS = ["<s>", "</s>", *(chr(ord("a") + place) for place in range(26)), *map(str, range(4))]
MODEL = ModelConfig(
    vocab_size=len(TOKENS), width=32, num_layers=2, num_heads=2, num_kv_heads=2, head_size=16, mlp_width=64, context_length=64,
    tie_embeddings=False,
)  # fmt: skip


def request(number: int) -> SampleRequest:
    ids = np.random.default_rng(number).integers(2, MODEL.vocab_size, 5 + number).astype(np.int32)
    return SampleRequest(ids, 10, (1,), 0.0, (0, 0, number, 0, 0), f"episode {number}")


@pytest.mark.extra
@pytest.mark.slow
@pytest.mark.skipif(not PROGRAM.is_file(), reason="llama.cpp's server is not built: make bench-peers builds it")
def test_greedy_tokens_of_llama_cpp_are_those_of_our_engine(tmp_path):
    model = Transformer(MODEL, nnx.Rngs(0))
    model.unembedding_VW[...] = model.unembedding_VW[...] * 4
    path = tmp_path / "model.gguf"
    write_gguf(model, path, TOKENS, 1)
    options = {"parallel": 4, "ctx-size": 256, "cache-type-k": "f32", "cache-type-v": "f32", "flash-attn": "off"}

    async def main(url: str):
        config = HttpConfig(urls=(url,), dialect="llama", context_length=64)
        shapes = EngineConfig(slots=4, context_length=64, prefill_rows=4, prefill_chunk=16)
        async with HttpEngine(config, model) as engine, Engine(model, shapes) as own:
            theirs = await asyncio.gather(*(engine.sample(request(number)) for number in range(6)))
            ours = await asyncio.gather(*(own.sample(request(number)) for number in range(6)))
            await engine.load(Weights(nnx.state(model, nnx.Param)), 0)
            with pytest.raises(RuntimeError, match="expected a folder to hand weights over in"):
                await engine.load(Weights(nnx.state(model, nnx.Param)), 1)
            return theirs, ours

    with LlamaProcess(PROGRAM, path, options, tmp_path / "log") as server:
        theirs, ours = asyncio.run(main(server.url))
    for number, (one, other) in enumerate(zip(theirs, ours, strict=True)):
        assert one.ids.tolist() == other.ids.tolist()
        assert one.stop_reason == other.stop_reason
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=2e-3)
        assert sample_problem(one, request(number)) is None
