"""How long an engine takes to open, with nothing compiled before and with the compilation cache warm, and its first tokens.

Each opening is a process of its own; the model has the shape of SmolLM2-135M and random weights. The first token of a warm
engine is that of a lone request with a context of 32 tokens that no row holds.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile

INSIDE = """
import asyncio, json, time
begun = time.perf_counter()
import numpy as np
from flax import nnx
from stages.models.config import ModelConfig
from stages.models.transformer import Transformer
from stages.policy import SampleRequest
from stages.rollout.config import EngineConfig
from stages.rollout.engine import Engine
model = Transformer(ModelConfig(vocab_size=49152, width=576, num_layers=30, num_heads=9, num_kv_heads=3, head_size=64,
                                mlp_width=1536, context_length=8192), nnx.Rngs(0))
made = time.perf_counter()
async def main():
    async with Engine(model, EngineConfig(slots=32, context_length=256)) as engine:
        opened, first = time.perf_counter(), []
        for number in range(9):
            ids = np.random.default_rng(number).integers(0, 49152, 32).astype(np.int32)
            asked = time.perf_counter()
            await engine.sample(SampleRequest(ids, 1, (), 1.0, (0, 0, 0, 0, 0), str(number)))
            first.append(time.perf_counter() - asked)
        print(json.dumps({"imports_and_model_s": made - begun, "open_s": opened - made, "first_token_s": first}))
asyncio.run(main())
"""


def main() -> None:
    """Prints the seconds, then the result as JSON."""
    with tempfile.TemporaryDirectory() as cache:
        settings = {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1"}
        cold, warm = (opened(settings) for _ in range(2))
    first_s = statistics.median(warm["first_token_s"])
    print(f"opens in {cold['open_s']:.1f} s, with the compilation cache warm in {warm['open_s']:.1f} s")
    print(f"first token of a warm engine: {1e3 * first_s:.0f} ms; the very first {1e3 * warm['first_token_s'][0]:.0f} ms")
    ratios = {"open_warm": warm["open_s"] / cold["open_s"], "very_first_token": warm["first_token_s"][0] / first_s}
    print(json.dumps({"bench": "engine_start", "ratios": ratios, "targets": {}, "detail": {"cold": cold, "warm": warm}}))


def opened(settings: dict[str, str]) -> dict:
    """What one process measured."""
    command = [sys.executable, "-c", INSIDE]
    done = subprocess.run(command, env={**os.environ, **settings}, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
