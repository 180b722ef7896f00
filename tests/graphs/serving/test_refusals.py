"""Who and what a server refuses: strangers, pages of others, bodies without end, paths outside, versions out of order."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from flax import nnx

from graphs.commands.serve import listen
from graphs.serving.config import ServeConfig, is_loopback, read_token
from stages.models.huggingface import write_huggingface
from stages.models.transformer import Transformer

BROKEN = ("absent", "cut", "other")
"""Folders that are not there, whose tensors are cut off, and of another model."""
CONTROL = ("/pause", "/resume", "/abort_requests", "/collective_rpc", "/update_weight_version")


@pytest.fixture
def ask(serving: Any, pretrained_folder: Path) -> Callable[..., Any]:
    """Runs a function of a plain HTTP client, and the server."""

    def run(use: Callable[..., Any], token: str | None = None, **settings: Any) -> Any:
        async def main() -> Any:
            async with serving(pretrained_folder, token=token, **settings) as server:
                headers = {} if token is None else {"Authorization": f"Bearer {token}"}
                async with httpx2.AsyncClient(base_url=server.url, headers=headers, timeout=60, trust_env=False) as client:
                    return await use(client, server)

        return asyncio.run(main())

    return run


def message(answer: httpx2.Response) -> str:
    return answer.json()["error"]["message"]


@pytest.mark.extra
@pytest.mark.slow
def test_a_server_with_a_token_answers_nobody_without_it_but_that_it_is_well(ask, token):
    async def use(client, server):
        async with httpx2.AsyncClient(base_url=server.url, trust_env=False) as stranger:
            wrong = {"Authorization": f"Bearer {token[:-1]}x"}
            paths = ("/v1/models", "/metrics", "/weight_info", "/v1/nothing")
            got = [(await stranger.get(path, headers=headers)).status_code for path in paths for headers in ({}, wrong)]
            odd = await stranger.get("/v1/models", headers=[(b"Authorization", b"Bearer \xff\xfe")])
            return (
                got,
                odd.status_code,
                (await stranger.get("/health")).status_code,
                (await client.get("/v1/models")).status_code,
            )

    refused, odd, health, known = ask(use, token)
    assert refused == [401] * 8
    assert (odd, health, known) == (401, 200, 200)


@pytest.mark.extra
@pytest.mark.slow
def test_a_server_without_a_token_is_asked_by_its_own_name_and_is_not_controlled(ask):
    async def use(client, server):
        rebound = await client.get("/v1/models", headers={"Host": "evil.example"})
        own = [
            (await client.get("/v1/models", headers={"Host": host})).status_code
            for host in ("localhost:1", "127.0.0.1", "[::1]")
        ]
        controls = [(await client.post(path)).status_code for path in CONTROL]
        return rebound.status_code, own, controls

    rebound, own, controls = ask(use)
    assert rebound == 403
    assert own == [200] * 3
    assert controls == [403] * len(CONTROL)


@pytest.mark.extra
@pytest.mark.slow
def test_bodies_that_are_too_long_no_json_or_of_another_type_are_refused(ask):
    async def parts():
        for _ in range(4):
            yield b" " * 1000

    async def never():
        yield b"{"
        await asyncio.sleep(0.5)

    async def use(client, server):
        json = {"Content-Type": "application/json"}
        path = "/v1/completions"
        return [
            await client.post(path, content=b" " * 2001, headers=json),
            await client.post(path, content=parts(), headers=json),
            await client.post(path, content=never(), headers=json),
            await client.post(path, content=b"{", headers=json),
            await client.post(path, content=b'{"model": "tiny", "prompt": [1], "temperature": NaN}', headers=json),
            await client.post(path, content=b"[" * 1900, headers=json),
            await client.post(path, content=b'{"model": "tiny", "prompt": "a"}', headers={"Content-Type": "text/plain"}),
            await client.get(path),
            await client.post("/v1/nothing", json={}),
        ], (await client.post(path, json={"model": "tiny", "prompt": "a"})).status_code

    answers, after = ask(use, limits={"body_bytes": 2000, "body_s": 0.2})
    assert [answer.status_code for answer in answers] == [413, 413, 408, 400, 400, 400, 415, 405, 404]
    assert "expected a body of at most 2000 bytes" in message(answers[0])
    assert after == 200


@pytest.mark.extra
@pytest.mark.slow
def test_weights_are_read_from_inside_the_folder_alone_and_whole_or_not_at_all(ask, token, tmp_path, pretrained_folder):
    inside, outside = tmp_path / "weights", tmp_path / "elsewhere"
    inside.mkdir()

    async def use(client, server):
        write_huggingface(Transformer(server.model.config, nnx.Rngs(3)), outside)
        (inside / "link").symlink_to(outside)
        write_huggingface(Transformer(server.model.config, nnx.Rngs(3)), inside / "whole")
        write_huggingface(Transformer(server.model.config, nnx.Rngs(3)), inside / "cut")
        tensors = inside / "cut" / "model.safetensors"
        tensors.write_bytes(tensors.read_bytes()[:-100])
        other = server.model.config.model_copy(update={"mlp_width": 40})
        write_huggingface(Transformer(other, nnx.Rngs(3)), inside / "other")

        def load(path: Path | str):
            return client.post("/collective_rpc", json={"method": "reload_weights", "kwargs": {"weights_path": str(path)}})

        early = await load(inside / "whole")
        await client.post("/pause?mode=keep")
        bad = (outside, inside / "link", inside / ".." / "elsewhere", inside, "/etc", *(inside / name for name in BROKEN))
        refused = [await load(path) for path in bad]
        rpc = await client.post("/collective_rpc", json={"method": "os.system", "kwargs": {"weights_path": "x"}})
        unread = await client.post("/update_weight_version", json={"new_version": "1"})
        before = (await client.get("/weight_info")).json()
        read = await load(inside / "whole")
        half = await client.post("/resume")
        odd = [
            (await client.post("/update_weight_version", json={"new_version": told})).status_code
            for told in ("-1", "one", "1e3", str(2**31))
        ]
        named = await client.post("/update_weight_version", json={"new_version": "5"})
        resumed = await client.post("/resume")
        return early, refused, rpc, unread, before, read, half, odd, named, resumed, (await client.get("/weight_info")).json()

    early, refused, rpc, unread, before, read, half, odd, named, resumed, after = ask(use, token, weights=inside)
    assert (early.status_code, message(early)) == (409, "expected a paused server; got one that samples; post to /pause first")
    assert [answer.status_code for answer in refused] == [403] * 5 + [400] * 3
    assert "expected a path inside the folder of --weights" in message(refused[0])
    assert "the weights in force stay" in message(refused[-2])
    assert rpc.status_code == 400
    assert (unread.status_code, before) == (409, {"weight_version": "0"})
    assert (read.status_code, half.status_code) == (200, 409)
    assert odd == [400] * 4
    assert (named.status_code, resumed.status_code, after) == (200, 200, {"weight_version": "5"})


@pytest.mark.extra
@pytest.mark.slow
def test_a_pause_keeps_ends_or_waits_for_what_is_under_way(ask, token):
    async def use(client, server):
        asked = {"model": "tiny", "prompt": [5, 6], "max_tokens": 50, "ignore_eos": True, "seed": 1, "return_token_ids": True}
        whole = (await client.post("/v1/completions", json=asked)).json()["choices"][0]["token_ids"]

        async def paused(mode: str) -> tuple[bool, Any]:
            began = server.engine.statistics().sampled_tokens
            task = asyncio.create_task(client.post("/v1/completions", json=asked))
            while server.engine.statistics().sampled_tokens == began:  # noqa: ASYNC110
                await asyncio.sleep(0)
            await client.post(f"/pause?mode={mode}")
            is_paused = (await client.get("/is_paused")).json()["is_paused"]
            if mode != "keep":
                choice = (await task).json()["choices"][0]
                late = asyncio.create_task(client.post("/v1/completions", json=asked))
                done, _ = await asyncio.wait((late,), timeout=0.1)
                assert not done
            await client.post("/resume")
            if mode == "keep":
                choice = (await task).json()["choices"][0]
            else:
                assert (await late).json()["choices"][0]["token_ids"] == whole
            return is_paused, choice

        bad = (await client.post("/pause?mode=never")).status_code
        return whole, {mode: await paused(mode) for mode in ("keep", "wait", "abort")}, bad

    whole, found, bad = ask(use, token)
    assert bad == 400
    assert all(is_paused for is_paused, _ in found.values())
    assert found["keep"][1]["token_ids"] == found["wait"][1]["token_ids"] == whole
    aborted = found["abort"][1]
    assert aborted["finish_reason"] in ("abort", "length")
    assert aborted["token_ids"] == whole[: len(aborted["token_ids"])]


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("localhost", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.2", False),
        ("", False),
    ],
)
def test_addresses_of_this_machine_alone_are_told_apart(host, local):
    assert is_loopback(host) is local


def test_a_server_that_others_reach_or_that_takes_weights_needs_a_token(monkeypatch, tmp_path):
    monkeypatch.delenv("HEADRACE_TOKEN", raising=False)
    assert read_token(ServeConfig()) is None
    for config in (ServeConfig(host="0.0.0.0"), ServeConfig(weights=tmp_path)):
        with pytest.raises(ValueError, match="expected a token with"):
            read_token(config)
    monkeypatch.setenv("HEADRACE_TOKEN", "short")
    with pytest.raises(ValueError, match="expected a token of at least 16"):
        read_token(ServeConfig())
    monkeypatch.setenv("HEADRACE_TOKEN", "long-enough-to-be-one")
    assert read_token(ServeConfig(host="0.0.0.0")) == "long-enough-to-be-one"


def test_an_answer_is_sent_at_once():
    """asyncio turns Nagle's algorithm off only where the protocol is named, which accepted connections inherit."""
    with listen("127.0.0.1", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP


def test_an_address_that_is_taken_is_told():
    with listen("127.0.0.1", 0) as listening:
        listening.listen()
        with pytest.raises(ValueError, match="expected an address that can be listened at"):
            listen("127.0.0.1", listening.getsockname()[1])
