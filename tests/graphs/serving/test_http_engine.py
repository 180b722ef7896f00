"""The engine over ``headrace serve``, held against an engine in this process with the same weights: equal to the bit."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from flax import nnx

from stages.models.transformer import Transformer
from stages.policy import SampleRequest
from stages.records import Weights
from stages.rollout.http.config import HttpConfig
from stages.rollout.http.engine import HttpEngine

pytestmark = [pytest.mark.extra, pytest.mark.slow]
ROOT = Path(__file__).parents[3]


def request(number: int, turn: int = 0, **changes: Any) -> SampleRequest:
    fields = {
        "ids": np.arange(3, 8 + number, dtype=np.int32), "max_tokens": 12, "stop_ids": (1, 2), "temperature": 0.8,
        "key": (1, 0, number, 0, turn), "session": f"episode {number}",
    }  # fmt: skip
    return SampleRequest(**{**fields, **changes})


def same(one: Any, other: Any) -> bool:
    arrays = ((one.ids, other.ids), (one.logprobs, other.logprobs), (one.versions, other.versions))
    return one.stop_reason == other.stop_reason and all(np.array_equal(*pair) for pair in arrays)


def other_weights(model: Transformer) -> Weights:
    return Weights(nnx.state(Transformer(model.config, nnx.Rngs(7)), nnx.Param))


async def sessions_at(server: Any) -> int:
    """Sessions that a server remembers."""
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {server.token}"}, trust_env=False) as client:
        text = (await client.get(f"{server.url}/metrics")).text
    return int(float(re.findall(r"^headrace_sessions ([\d.]+)$", text, re.MULTILINE)[0]))


@pytest.fixture
def over(serving: Any, pretrained_folder: Path, token: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs a function of a server and an engine over it."""
    monkeypatch.setenv("HEADRACE_TOKEN", token)

    def run(use: Callable[..., Any], folder: Path | None = None, **settings: Any) -> Any:
        async def main() -> Any:
            async with serving(pretrained_folder, token=token, weights=folder, **settings) as server:
                config = HttpConfig(urls=(server.url,), context_length=64, weights=folder, health_s=0.1)
                async with HttpEngine(config, server.model) as engine:
                    return await asyncio.wait_for(use(server, engine), 120)

        return asyncio.run(main())

    return run


def test_requests_of_several_turns_have_the_engines_own_tokens_and_keep_their_cache(over):
    async def use(server, engine):
        first = await asyncio.gather(*(engine.sample(request(number, untempered=True)) for number in range(3)))
        grown = [np.concatenate([request(number).ids, first[number].ids, [5]]).astype(np.int32) for number in range(3)]
        second = await asyncio.gather(*(engine.sample(request(number, 1, ids=grown[number])) for number in range(3)))
        own = [await server.engine.sample(request(number, untempered=True, session=f"own {number}")) for number in range(3)]
        after = [
            await server.engine.sample(request(number, 1, ids=grown[number], session=f"own {number}")) for number in range(3)
        ]
        before = await sessions_at(server)
        for number in range(3):
            engine.release(f"episode {number}")
        while await sessions_at(server):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert before == 3
        return first, second, own, after

    first, second, own, after = over(use)
    assert all(map(same, [*first, *second], [*own, *after]))
    assert all(np.array_equal(one.untempered, other.untempered) for one, other in zip(first, own, strict=True))
    assert all(sample.num_cached >= 5 for sample in second)
    assert all(sample.queue_s is not None and sample.decode_s is not None for sample in second)


def test_new_weights_are_in_force_on_the_server_under_their_version(over, tmp_path):
    async def use(server, engine):
        before = await engine.sample(request(0))
        await engine.load(other_weights(server.model), 1)
        after = await engine.sample(request(0, session="new"))
        # A training that was gone on with may be behind.
        await engine.load(Weights(nnx.state(server.model, nnx.Param)), 0)
        await engine.load(other_weights(server.model), 1)
        again = await engine.sample(request(0, session="newer"))
        wanted = await server.engine.sample(request(0, session="own"))
        return before, after, again, wanted, engine.servers()

    before, after, again, wanted, servers = over(use, tmp_path)
    assert before.versions.tolist() == [0] * len(before.ids)
    assert same(after, wanted)
    assert same(again, wanted)
    assert after.ids.tolist() != before.ids.tolist()
    assert [(status.state, status.version) for status in servers] == [("ready", 1)]


def test_a_request_goes_on_over_new_weights_with_a_version_for_each_token(over, tmp_path):
    async def use(server, engine):
        asked = request(0, max_tokens=50, stop_ids=())
        task = asyncio.create_task(engine.sample(asked))
        while not server.engine.statistics().sampled_tokens:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await engine.load(other_weights(server.model), 1)
        return await task

    sample = over(use, tmp_path)
    assert len(sample.ids) == 50
    assert sample.versions.tolist() == sorted(sample.versions.tolist())
    assert set(sample.versions.tolist()) <= {0, 1}
    assert sample.versions[0] == 0


def test_an_aborted_request_gives_what_there_is(over):
    async def use(server, engine):
        whole = await server.engine.sample(request(0, max_tokens=50, stop_ids=(), session="own"))
        task = asyncio.create_task(engine.sample(request(0, max_tokens=50, stop_ids=())))
        while server.engine.statistics().sampled_tokens < 53:  # noqa: ASYNC110
            await asyncio.sleep(0)
        server.engine.pause()
        engine.abort("episode 0")
        sample = await task
        server.engine.resume()
        return sample, whole

    sample, whole = over(use)
    assert sample.stop_reason == "aborted"
    assert 0 < len(sample.ids) <= 50
    assert sample.ids.tolist() == whole.ids[: len(sample.ids)].tolist()


def test_a_server_process_that_is_killed_loses_no_request(serving, pretrained_folder, token, monkeypatch):
    """A real ``headrace serve``, killed in the middle of requests; another server answers them."""
    monkeypatch.setenv("HEADRACE_TOKEN", token)
    shape = ["slots", "4", "context-length", "64", "prefill-rows", "4", "prefill-chunk", "16"]
    flags = [f"--engine.{part}" if place % 2 == 0 else part for place, part in enumerate(shape)]
    command = [sys.executable, "-m", "graphs.cli", "serve", str(pretrained_folder), "--port", "0", "--name", "tiny"]
    process = subprocess.Popen(
        [*command, "engine:engine-config", *flags], stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    line = process.stdout.readline()
    (url,) = re.findall(r"http://[\d.:]+", line)

    async def main() -> Any:
        async with serving(pretrained_folder, token=token) as server:
            config = HttpConfig(urls=(url, server.url), context_length=64, health_s=0.1, backoff_s=0.01)
            async with HttpEngine(config, server.model) as engine:
                asked = [request(number, max_tokens=40, stop_ids=()) for number in range(12)]
                tasks = [asyncio.create_task(engine.sample(each)) for each in asked]
                while engine.servers()[0].under_way < 6:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
                process.kill()
                samples = await asyncio.wait_for(asyncio.gather(*tasks), 120)
                own = [await server.engine.sample(request(number, max_tokens=40, stop_ids=(), session=f"own {number}"))
                       for number in range(12)]  # fmt: skip
                return samples, own, engine.servers()

    try:
        samples, own, servers = asyncio.run(main())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert all(map(same, samples, own))
    assert servers[0].state == "down"
