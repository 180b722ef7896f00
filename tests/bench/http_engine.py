"""What HTTP costs: the same requests to an engine in this process and to ``headrace serve`` in another, over loopback.

The calculator's policy, small enough that the engine does not hide the rest. One request at a time, of one token and of
sixteen: what a request takes more over HTTP is the overhead. Then as many at once as there are slots: tokens a second of
both. Rounds alternate, and medians are told. Processor time of both processes, which other programs do not change, is told
too. Both share the machine's cores, as client and server on one machine do. Tokens must be equal.
"""

import asyncio
import json
import os
import re
import secrets
import statistics
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from graphs.calculator import CalculatorConfig, calculator
from stages.policy import Policy, Sample, SampleRequest
from stages.rollout.config import EngineConfig
from stages.rollout.engine import Engine
from stages.rollout.http.config import HttpConfig
from stages.rollout.http.engine import HttpEngine

ROOT = Path(__file__).parents[2]
SHAPES = EngineConfig(slots=32, context_length=64, prefill_rows=16, prefill_chunk=16)
SINGLE, AT_ONCE, ROUNDS = 60, 256, 3
FLAGS = ("slots", "32", "context-length", "64", "prefill-rows", "16", "prefill-chunk", "16")


def request(number: int, tokens: int) -> SampleRequest:
    """One of many, with a session of its own."""
    ids = np.random.default_rng(number).integers(10, 40, 12).astype(np.int32)
    return SampleRequest(ids, tokens, (), 1.0, (0, 0, number, 0, 0), f"bench-{number}-{tokens}")


async def one_by_one(policy: Policy, tokens: int) -> tuple[float, list[Sample]]:
    """Median milliseconds of a request, and what was sampled."""
    taken, samples = [], []
    for number in range(SINGLE):
        began = time.perf_counter()
        samples.append(await policy.sample(request(number, tokens)))
        taken.append(time.perf_counter() - began)
        policy.release(f"bench-{number}-{tokens}")
    return 1e3 * statistics.median(taken), samples


async def at_once(policy: Policy) -> tuple[float, list[Sample]]:
    """Tokens a second with every slot busy, and what was sampled."""
    room = asyncio.Semaphore(SHAPES.turns)

    async def one(number: int) -> Sample:
        async with room:
            sample = await policy.sample(request(number, 16))
            policy.release(f"bench-{number}-16")
            return sample

    began = time.perf_counter()
    samples = await asyncio.gather(*map(one, range(AT_ONCE)))
    return sum(len(sample.ids) for sample in samples) / (time.perf_counter() - began), list(samples)


def worked_s(pid: int) -> float:
    """Processor seconds of a process so far: user and system time, fields 14 and 15 of its line."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measured(url: str, server: int) -> dict[str, Any]:
    """All figures."""
    parts = calculator(CalculatorConfig()).parts
    assert parts is not None
    parts.load()
    config = HttpConfig(urls=(url,), context_length=64, slots=SHAPES.turns)
    rows: dict[str, list[float]] = {}
    async with Engine(parts.model, SHAPES) as here, HttpEngine(config, parts.model) as there:
        for _ in range(ROUNDS):
            samples: dict[str, list[Sample]] = {}
            for name, policy in (("here", here), ("http", there)):
                for what, work in (("1", one_by_one(policy, 1)), ("16", one_by_one(policy, 16)), ("all", at_once(policy))):
                    worked = worked_s(os.getpid()) + worked_s(server)
                    figure, sampled = await work
                    worked = worked_s(os.getpid()) + worked_s(server) - worked
                    rows.setdefault(f"{name} {what} worked", []).append(1e3 * worked / len(sampled))
                    rows.setdefault(f"{name} {what}", []).append(figure)
                    samples.setdefault(name, []).extend(sampled)
            for one, other in zip(samples["here"], samples["http"], strict=True):
                assert np.array_equal(one.ids, other.ids)
                assert np.array_equal(one.logprobs, other.logprobs)
    found = {name: statistics.median(values) for name, values in rows.items()}
    return {
        "request_1_token_ms": found["here 1"],
        "http_request_1_token_ms": found["http 1"],
        "overhead_ms": found["http 1"] - found["here 1"],
        "request_16_tokens_ms": found["here 16"],
        "http_request_16_tokens_ms": found["http 16"],
        "tokens_per_second": found["here all"],
        "http_tokens_per_second": found["http all"],
        "processor_ms_a_request": found["here all worked"],
        "http_processor_ms_a_request": found["http all worked"],
        "http_processor_overhead_ms": found["http all worked"] - found["here all worked"],
        "ratio": found["http all"] / found["here all"],
    }


def main() -> None:
    """Start a server, measure, end it."""
    if find_spec("uvicorn") is None or find_spec("starlette") is None:
        print(json.dumps({"skipped": "it needs pip install 'headrace[serve]'"}))
        return
    os.environ["HEADRACE_TOKEN"] = secrets.token_urlsafe()
    flags = [part if place % 2 else f"--engine.{part}" for place, part in enumerate(FLAGS)]
    command = [sys.executable, "-m", "graphs.cli", "serve", "calculator", "--port", "0", "engine:engine-config", *flags]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert server.stdout is not None
    try:
        (url,) = re.findall(r"http://[\d.:]+", server.stdout.readline())
        found = asyncio.run(measured(url, server.pid))
    finally:
        server.terminate()
        server.wait()
    for name, value in found.items():
        print(f"{name:<28} {value:,.3f}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
