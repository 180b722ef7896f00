"""The engine over servers of vLLM's and SGLang's interface, which are fakes here: see ``conftest.py``."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flax import nnx

from stages.agents.guards import sample_problem
from stages.models.config import ModelConfig
from stages.models.transformer import Transformer
from stages.policy import PolicyEnded, SampleRequest
from stages.records import Weights
from stages.rollout.http.config import HttpConfig
from stages.rollout.http.engine import HttpEngine

MODEL = ModelConfig(
    vocab_size=29, width=16, num_layers=1, num_heads=2, num_kv_heads=1, head_size=8, mlp_width=24, context_length=48
)
KINDS = ("vllm", "sglang")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model() -> Transformer:
    return Transformer(MODEL, nnx.Rngs(0))


def request(**changes: Any) -> SampleRequest:
    fields = {
        "ids": np.array([3, 4, 5], np.int32), "max_tokens": 6, "stop_ids": (0,), "temperature": 1.0, "key": (1, 2, 3, 0, 0),
        "session": "episode",
    }  # fmt: skip
    return SampleRequest(**{**fields, **changes})


def with_servers(use: Callable[[HttpEngine], Awaitable[Any]], fakes: list[Any], dialect: str, model: Any = None, **settings):
    base = {"context_length": 48, "backoff_s": 0.001, "health_s": 0.02, "down_s": 20.0}
    config = HttpConfig(urls=tuple(fake.url for fake in fakes), dialect=dialect, **{**base, **settings})

    async def main() -> Any:
        async with HttpEngine(config, model) as engine:
            return await asyncio.wait_for(use(engine), 60)

    return asyncio.run(main())


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 (what is waited for happens on a server)
        await asyncio.sleep(0.005)


def weights_of(model: Transformer) -> Weights:
    return Weights(nnx.state(model, nnx.Param))


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_logprobs_and_reasons_are_the_servers(fakes, sampled, kind):
    fake = fakes(kind)
    wanted = sampled([3, 4, 5], [0] * 6)

    async def use(engine):
        whole = await engine.sample(request())
        stopped = await engine.sample(request(stop_ids=(wanted[2],)))
        return whole, stopped

    whole, stopped = with_servers(use, [fake], kind)
    assert whole.ids.tolist() == wanted
    assert whole.logprobs.tolist() == [-0.5 * token for token in wanted]
    assert whole.versions.tolist() == [0] * 6
    assert (whole.stop_reason, stopped.stop_reason) == ("length", "stop")
    assert stopped.ids.tolist() == wanted[:3]
    assert sample_problem(whole, request()) is None
    assert sample_problem(stopped, request(stop_ids=(wanted[2],))) is None


@pytest.mark.parametrize(
    ("kind", "change", "settings", "refused"),
    [
        ("vllm", {"temperature": 0.7}, {}, True),
        ("vllm", {"temperature": 0.7}, {"logprobs": "processed"}, False),
        ("vllm", {"temperature": 0.0}, {}, False),
        ("vllm", {"top_p": 0.9}, {}, True),
        ("sglang", {"temperature": 0.7}, {}, False),
        ("sglang", {"top_k": 5}, {}, True),
        ("sglang", {"top_k": 5}, {"logprobs": "any"}, False),
    ],
)
def test_a_request_whose_logprobs_the_servers_do_not_tell_is_refused(fakes, kind, change, settings, refused):
    fake = fakes(kind)

    async def use(engine):
        return await engine.sample(request(**change))

    if refused:
        with pytest.raises(ValueError, match="expected a request whose log-probabilities the servers tell"):
            with_servers(use, [fake], kind, **settings)
    else:
        assert len(with_servers(use, [fake], kind, **settings).ids) == 6


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_goes_on_over_a_change_of_weights_and_each_token_has_its_own_version(fakes, sampled, model, tmp_path, kind):
    fake = fakes(kind)

    async def use(engine):
        fake.hold()
        task = asyncio.create_task(engine.sample(request()))
        await asyncio.to_thread(fake.wait, lambda: bool(fake.running))
        fake.let(2)
        await asyncio.to_thread(fake.wait, lambda: fake.permits == 0)
        await engine.load(weights_of(model), 3)
        fake.let(float("inf"))
        return await task

    sample = with_servers(use, [fake], kind, model, weights=tmp_path)
    assert sample.versions.tolist() == [0, 0, 3, 3, 3, 3]
    assert sample.ids.tolist() == sampled([3, 4, 5], [0, 0, 3, 3, 3, 3])
    assert sample.stop_reason == "length"
    assert sample_problem(sample, request()) is None


def test_a_server_that_did_not_load_a_version_has_no_work_until_it_has(fakes, fault, model, tmp_path, caplog):
    good, bad = fakes("vllm"), fakes("vllm")
    bad.reload_fault = fault(500, "out of memory in the middle of it")

    async def use(engine):
        await engine.load(weights_of(model), 1)
        told = engine.servers()
        samples = [await engine.sample(request(session=f"episode {number}")) for number in range(6)]
        asked = sum(path == "/v1/completions" for path, _ in bad.asked)
        paused = bad.paused
        bad.reload_fault = None
        await until(lambda: engine.servers()[1].state == "ready")
        return told, samples, asked, paused, engine.servers()

    told, samples, asked, paused, healed = with_servers(use, [good, bad], "vllm", model, weights=tmp_path)
    assert [status.state for status in told] == ["ready", "refused"]
    assert "version 1 was not loaded" in told[1].reason
    assert "out of memory in the middle of it" in told[1].reason
    assert [sample.versions.tolist() for sample in samples] == [[1] * 6] * 6
    assert asked == 0
    assert paused
    assert [status.version for status in healed] == [1, 1]
    assert not bad.paused
    assert "gets no work: version 1 was not loaded" in caplog.text


def test_a_server_that_says_it_loaded_and_has_another_version_is_not_believed(fakes, model, tmp_path):
    good, bad = fakes("vllm"), fakes("vllm")
    bad.named = lambda version: 0

    async def use(engine):
        await engine.load(weights_of(model), 2)
        return engine.servers(), bad.paused

    told, paused = with_servers(use, [good, bad], "vllm", model, weights=tmp_path, health_s=30)
    assert told[1].state == "refused"
    assert "expected that it tells this version after its load; got 0" in told[1].reason
    assert paused


def test_no_server_that_took_new_weights_is_an_error(fakes, fault, model, tmp_path):
    fake = fakes("sglang")
    fake.reload_fault = fault(500, "no such file")
    with pytest.raises(RuntimeError, match=r"expected a server that takes version 1; got none: .*no such file"):
        with_servers(lambda engine: engine.load(weights_of(model), 1), [fake], "sglang", model, weights=tmp_path)


def test_a_server_that_was_started_anew_gets_the_weights_in_force_before_it_has_work(fakes, model, tmp_path):
    fake = fakes("vllm")

    async def use(engine):
        await engine.load(weights_of(model), 4)
        fake.version = 0
        await until(lambda: fake.version == 4 and engine.servers()[0].state == "ready")
        return await engine.sample(request())

    assert with_servers(use, [fake], "vllm", model, weights=tmp_path).versions.tolist() == [4] * 6


def test_tokens_of_another_version_than_the_one_in_force_are_thrown_away(fakes, sampled, model, tmp_path):
    good, bad = fakes("sglang"), fakes("sglang")

    async def use(engine):
        await engine.load(weights_of(model), 2)
        bad.tells = 1
        return [await engine.sample(request(session=f"episode {number}")) for number in range(4)], engine.servers()

    samples, told = with_servers(use, [bad, good], "sglang", model, weights=tmp_path, health_s=30)
    assert [sample.ids.tolist() for sample in samples] == [sampled([3, 4, 5], [2] * 6)] * 4
    assert [sample.versions.tolist() for sample in samples] == [[2] * 6] * 4
    assert told[0].state == "refused"
    assert "expected tokens of version 2; got some of 1" in told[0].reason


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_is_sent_again_under_one_name_until_it_is_answered(fakes, fault, sampled, kind):
    fake = fakes(kind)
    fake.faults = [fault(503, "busy"), None, fault(429, "too many", {"Retry-After": "0"})]
    sample = with_servers(lambda engine: engine.sample(request()), [fake], kind)
    field = {"vllm": "request_id", "sglang": "rid"}[kind]
    bodies = [body for path, body in fake.asked if path in ("/v1/completions", "/generate")]
    assert len(bodies) == 4
    assert len({body[field] for body in bodies}) == 1
    assert len({json.dumps(body) for body in bodies}) == 1
    assert sample.ids.tolist() == sampled([3, 4, 5], [0] * 6)


def test_a_request_that_is_never_answered_fails_with_what_the_server_said(fakes, fault):
    fake = fakes("vllm")
    fake.faults = [fault(503, "no room")] * 3

    async def use(engine):
        with pytest.raises(RuntimeError, match=r"(?s)expected an answer in 3 attempts; got none.*no room"):
            await engine.sample(request())
        return await engine.sample(request())

    assert len(with_servers(use, [fake], "vllm", attempts=3).ids) == 6


def test_a_request_that_is_wrong_is_not_sent_again(fakes, fault):
    fake = fakes("vllm")
    fake.faults = [fault(400, "prompt too long")]
    with pytest.raises(RuntimeError, match=r"got 400.*prompt too long"):
        with_servers(lambda engine: engine.sample(request()), [fake], "vllm")
    assert sum(path == "/v1/completions" for path, _ in fake.asked) == 1


def test_an_episode_stays_at_its_server_and_episodes_spread(fakes):
    servers = [fakes("vllm"), fakes("vllm")]

    async def use(engine):
        for turn in range(3):
            for number in range(4):
                await engine.sample(request(session=f"episode {number}", key=(number, 0, 0, 0, turn)))

    with_servers(use, servers, "vllm")
    seeds = [[body["seed"] for path, body in fake.asked if path == "/v1/completions"] for fake in servers]
    assert [len(each) for each in seeds] == [6, 6]
    # Turns of two episodes each, in turn: were episodes not kept together, the order of the seeds would be mixed.
    assert len(set(seeds[0]) & set(seeds[1])) == 0


def test_an_episode_moves_when_its_server_has_gone(fakes, sampled):
    servers = [fakes("vllm"), fakes("vllm")]

    async def use(engine):
        first = await engine.sample(request())
        held = next(fake for fake in servers if any(path == "/v1/completions" for path, _ in fake.asked))
        held.stop()
        return first, await engine.sample(request()), engine.servers()[servers.index(held)]

    first, second, gone = with_servers(use, servers, "vllm")
    assert first.ids.tolist() == second.ids.tolist() == sampled([3, 4, 5], [0] * 6)
    assert gone.state == "down"


@pytest.mark.parametrize("kind", KINDS)
def test_an_aborted_request_gives_what_there_is(fakes, sampled, kind):
    fake = fakes(kind)

    async def use(engine):
        fake.hold()
        task = asyncio.create_task(engine.sample(request()))
        await asyncio.to_thread(fake.wait, lambda: bool(fake.running))
        fake.let(3)
        await asyncio.to_thread(fake.wait, lambda: fake.permits == 0)
        engine.abort("episode")
        return await task

    sample = with_servers(use, [fake], kind)
    assert sample.stop_reason == "aborted"
    assert sample.ids.tolist() == sampled([3, 4, 5], [0] * 3)


def test_a_cancelled_request_closes_its_connection(fakes):
    fake = fakes("vllm")

    async def use(engine):
        fake.hold()
        task = asyncio.create_task(engine.sample(request()))
        await asyncio.to_thread(fake.wait, lambda: bool(fake.running))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.to_thread(fake.wait, lambda: not fake.running)
        return fake.gone, engine.servers()[0].under_way

    assert with_servers(use, [fake], "vllm") == (1, 0)


def test_the_run_ends_where_no_server_may_work_any_more(fakes):
    fake = fakes("vllm")

    async def use(engine):
        fake.stop()
        with pytest.raises(PolicyEnded, match=r"expected a server that may work; got none for 0.3 s: http.* is down"):
            await engine.sample(request())

    with_servers(use, [fake], "vllm", down_s=0.3, attempts=10_000)


def test_a_server_that_is_not_there_is_told_when_the_engine_opens(fakes):
    fake = fakes("vllm")
    fake.stop()
    with pytest.raises(RuntimeError, match=r"expected a server that answers; got none: .* is down"):
        with_servers(lambda engine: asyncio.sleep(0), [fake], "vllm")


def test_the_token_goes_with_every_request(fakes, monkeypatch):
    fake = fakes("vllm", token="secret-of-a-test-123")
    with pytest.raises(RuntimeError, match="got 401"):
        with_servers(lambda engine: engine.sample(request()), [fake], "vllm")
    monkeypatch.setenv("HEADRACE_TOKEN", "secret-of-a-test-123")
    assert len(with_servers(lambda engine: engine.sample(request()), [fake], "vllm").ids) == 6


def test_new_weights_without_a_folder_for_them_are_refused_and_version_0_is_what_the_servers_have(fakes, model):
    fake = fakes("vllm")

    async def use(engine):
        await engine.load(weights_of(model), 0)
        with pytest.raises(RuntimeError, match="expected a folder to hand weights over in; got none, for version 1"):
            await engine.load(weights_of(model), 1)

    with_servers(use, [fake], "vllm", model)
    assert all(path != "/pause" for path, _ in fake.asked)


def test_of_the_written_weights_the_last_two_stay(fakes, model, tmp_path):
    fake = fakes("vllm")

    async def use(engine):
        for version in range(4):
            await engine.load(weights_of(model), version)

    with_servers(use, [fake], "vllm", model, weights=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["version-000002", "version-000003"]


@pytest.mark.parametrize(
    ("servers", "told"),
    [
        (("127.0.0.1:8000",), "expected addresses such as"),
        (("http://a:8000/v1",), "leave paths out"),
        (("http://user:word@a:8000",), "expected no password in an address"),
        (("http://a:1", "http://a:1"), "expected each server once"),
    ],
)
def test_addresses_are_checked(servers, told):
    with pytest.raises(ValueError, match=told):
        HttpConfig(urls=servers)


def test_weights_path_exists_only_whole(model, tmp_path: Path):
    from stages.rollout.http.published import Published

    folder = Published(model, tmp_path).write(nnx.state(model, nnx.Param), 7)
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    assert [path.name for path in tmp_path.iterdir()] == ["version-000007"]
