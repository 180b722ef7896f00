"""Five hundred requests at once: none is lost, and those whose clients go away free their slots."""

import asyncio
from pathlib import Path

import httpx2
import numpy as np
import pytest

from stages.policy import SampleRequest
from stages.rollout.config import EngineConfig

NUM_REQUESTS, NUM_GONE = 500, 100
ENGINE = EngineConfig(slots=32, context_length=64, prefill_rows=8, prefill_chunk=16)


@pytest.mark.extra
@pytest.mark.slow
def test_of_500_requests_at_once_none_is_lost_and_those_that_go_away_free_their_slots(serving, pretrained_folder: Path):
    def body(number: int) -> dict:
        return {
            "model": "tiny", "prompt": [3, 4 + number % 20], "max_tokens": 12, "seed": number, "return_token_ids": True,
            "ignore_eos": True,
        }  # fmt: skip

    async def main():
        limits = httpx2.Limits(max_connections=None)
        async with (
            serving(pretrained_folder, engine=ENGINE) as server,
            httpx2.AsyncClient(base_url=server.url, limits=limits, timeout=300, trust_env=False) as client,
        ):
            server.engine.pause()
            tasks = [asyncio.create_task(client.post("/v1/completions", json=body(number))) for number in range(NUM_REQUESTS)]
            statistics = server.engine.statistics
            while statistics().slots_busy + statistics().waiting < NUM_REQUESTS:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            for task in tasks[:: NUM_REQUESTS // NUM_GONE]:
                task.cancel()
            while statistics().slots_busy + statistics().waiting > NUM_REQUESTS - NUM_GONE:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            server.engine.resume()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            text = (await client.get("/metrics")).text
            wanted = [
                await server.engine.sample(
                    SampleRequest(
                        ids=np.array(body(number)["prompt"], np.int32), max_tokens=12, stop_ids=(), temperature=1.0,
                        key=(number, 0, 0, 0, 0), session=f"own {number}",
                    )
                )
                for number in (1, 251, 499)
            ]  # fmt: skip
            return answers, text, statistics(), wanted

    answers, text, statistics, wanted = asyncio.run(main())
    gone = [answer for answer in answers if isinstance(answer, asyncio.CancelledError)]
    served = [answer for answer in answers if isinstance(answer, httpx2.Response)]
    assert (len(gone), len(served)) == (NUM_GONE, NUM_REQUESTS - NUM_GONE)
    assert {answer.status_code for answer in served} == {200}
    assert all(len(answer.json()["choices"][0]["token_ids"]) == 12 for answer in served)
    for number, sample in zip((1, 251, 499), wanted, strict=True):
        assert answers[number].json()["choices"][0]["token_ids"] == sample.ids.tolist()
    assert (statistics.slots_busy, statistics.waiting) == (0, 0)
    assert 'headrace_requests_total{path="/v1/completions",status="200"} 400.0' in text
    assert 'headrace_requests_total{path="/v1/completions",status="499"} 100.0' in text
    assert "headrace_requests_inside 0.0" in text
