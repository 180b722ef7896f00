"""What the trace costs an engine whose steps are as short as they come: its hooks, called as it calls them, over its steps.

The model is one of a thousand parameters over 16 slots, each request has 8 tokens, so hooks are called as often as they ever
are. Target: 1 % at most of a step's time. A whole run with and without a trace is in ``trace_overhead.py``.
"""

import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from flax import nnx

from flow.trace import PerfettoWriter, recording
from stages.models.config import ModelConfig
from stages.models.transformer import Transformer
from stages.policy import SampleRequest
from stages.rollout.config import EngineConfig
from stages.rollout.engine import Engine
from stages.rollout.steps import Job, Times
from stages.rollout.tracing import EngineTrace

MODEL = ModelConfig(
    vocab_size=64, width=16, num_layers=1, num_heads=2, num_kv_heads=1, head_size=8, mlp_width=32, context_length=64
)
CONFIG = EngineConfig(slots=16, context_length=64, prefill_rows=8, prefill_chunk=16)
REQUESTS, TOKENS, REPEATS = 256, 8, 7
HOOKS, CHUNKS = 640, 31


def request(number: int, turn: int) -> SampleRequest:
    ids = np.random.default_rng(number).integers(4, 30, 12).astype(np.int32)
    return SampleRequest(ids, TOKENS, (), 1.0, (0, number, 0, 0, turn), f"episode {turn}.{number}", flow=number)


async def rounds() -> tuple[list[float], float]:
    """Microseconds of a step that the device is at work, round after round; and requests for each step. Nobody records."""
    found: list[float] = []
    async with Engine(Transformer(MODEL, nnx.Rngs(0)), CONFIG) as engine:
        for turn in range(REPEATS):
            before = engine.statistics()
            await asyncio.gather(*(engine.sample(request(number, turn)) for number in range(REQUESTS)))
            after = engine.statistics()
            found.append((after.decode_s - before.decode_s) / (after.steps - before.steps) * 1e6)
            for number in range(REQUESTS):
                engine.release(f"episode {turn}.{number}")
        return found, REQUESTS * REPEATS / engine.statistics().steps


def hooks(folder: Path) -> tuple[float, float]:
    """Microseconds of what is told of a step, and of a request: medians of processor time, which other jobs do not change."""
    with PerfettoWriter(folder / "hooks.pftrace") as recorder, recording(recorder):
        trace = EngineTrace("engine", lambda: None)
        trace._count = lambda at_s: None  # its cost is four a second
        job = Job(request(0, 0), np.zeros(2, np.uint32), None, Times(0.0, 3, 1.0, 2.0))
        a_step, a_request = list[float](), list[float]()
        for chunk in range(CHUNKS):
            began = time.thread_time()
            for number in range(HOOKS):
                at_s = (chunk * HOOKS + number) * 4e-4
                trace.step("decode", at_s, at_s + 3.5e-4, 32)
            between = time.thread_time()
            for number in range(HOOKS):
                trace.stayed(job, None, 3.0)
                if number % 64 == 0:
                    trace.hand_over()
            a_step.append((between - began) / HOOKS)
            a_request.append((time.thread_time() - between) / HOOKS)
            recorder.flush()  # so that none finds the backlog full
        return statistics.median(a_step) * 1e6, statistics.median(a_request) * 1e6


def main() -> None:
    """Prints the measurements as one line of JSON."""
    steps_us, per_step = asyncio.run(rounds())
    with tempfile.TemporaryDirectory() as folder:
        a_step, a_request = hooks(Path(folder))
    share = (a_step + a_request * per_step) / statistics.median(steps_us)
    detail = {
        "decode_step_us": {"median": statistics.median(steps_us), "min": min(steps_us), "max": max(steps_us)},
        "hook_of_a_step_us": a_step,
        "hook_of_a_request_us": a_request,
        "requests_a_step": per_step,
    }
    print(json.dumps({"bench": "engine_trace", "ratios": {"hooks": share}, "targets": {"hooks": 0.01}, "detail": detail}))


if __name__ == "__main__":
    main()
