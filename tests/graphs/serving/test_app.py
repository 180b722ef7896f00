"""The server as the official client of OpenAI sees it, held against the engine that it serves, asked without HTTP."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.policy import SampleRequest
from stages.records import Message

openai = pytest.importorskip("openai")
pytestmark = [pytest.mark.extra, pytest.mark.slow]


def client_of(url: str) -> Any:
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


@pytest.fixture
def ask(serving: Any, pretrained_folder: Path) -> Callable[..., Any]:
    """Runs a function of the server and a client."""

    def run(use: Callable[..., Any], **settings: Any) -> Any:
        async def main() -> Any:
            async with (
                serving(pretrained_folder, **settings) as server,
                openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=server.token or "none", max_retries=0) as client,
            ):
                return await asyncio.wait_for(use(server, client), 120)

        return asyncio.run(main())

    return run


def request(ids: np.ndarray, **changes: Any) -> SampleRequest:
    fields = {"ids": ids, "max_tokens": 8, "stop_ids": (), "temperature": 1.0, "key": (3, 0, 0, 0, 0), "session": "own"}
    return SampleRequest(**{**fields, **changes})


def test_a_completion_of_token_ids_is_what_the_engine_samples_to_the_bit(ask):
    ids = [5, 6, 7, 8]

    async def use(server, client):
        own = {"return_token_ids": True, "ignore_eos": True}
        got = await client.completions.create(model="tiny", prompt=ids, max_tokens=8, seed=3, logprobs=0, n=2, extra_body=own)
        wanted = [
            await server.engine.sample(request(np.array(ids, np.int32), key=(3, 0, number, 0, 0), session=f"own {number}"))
            for number in range(2)
        ]
        return got, wanted

    got, wanted = ask(use)
    assert [choice.token_ids for choice in got.choices] == [sample.ids.tolist() for sample in wanted]
    assert [choice.logprobs.token_logprobs for choice in got.choices] == [sample.logprobs.tolist() for sample in wanted]
    assert [choice.prompt_token_ids for choice in got.choices] == [ids, ids]
    assert [choice.finish_reason for choice in got.choices] == ["length", "length"]
    assert [choice.headrace["versions"] for choice in got.choices] == [[0] * 8] * 2
    assert got.usage.model_dump(include={"prompt_tokens", "completion_tokens"}) == {"prompt_tokens": 4, "completion_tokens": 16}


def test_a_chat_completion_continues_the_conversation_as_the_template_writes_it(ask):
    async def use(server, client):
        messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "What is the sum?"}]
        got = await client.chat.completions.create(
            model="tiny", messages=messages, max_tokens=8, seed=3, logprobs=True, extra_body={"return_token_ids": True}
        )
        ids = server.chat.open([Message("system", "Be short."), Message("user", "What is the sum?")], ())
        wanted = await server.engine.sample(request(ids, stop_ids=server.chat.stop_ids))
        return got, ids, wanted, server.chat

    got, ids, wanted, chat = ask(use)
    choice = got.choices[0]
    assert got.prompt_token_ids == ids.tolist()
    assert choice.token_ids == wanted.ids.tolist()
    assert [part.logprob for part in choice.logprobs.content] == wanted.logprobs.tolist()
    said = wanted.ids[:-1] if wanted.ids[-1] in chat.stop_ids else wanted.ids
    assert choice.message.content == chat.decode(said)
    assert choice.finish_reason == wanted.stop_reason


def test_a_stream_says_in_pieces_what_a_completion_says_at_once(ask):
    async def use(server, client):
        asked = {
            "model": "tiny", "messages": [{"role": "user", "content": "What?"}], "max_tokens": 24, "seed": 5, "logprobs": True,
            "extra_body": {"return_token_ids": True},
        }  # fmt: skip
        whole = await client.chat.completions.create(**asked)
        stream = await client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
        return whole, [piece async for piece in stream]

    whole, pieces = ask(use)
    counted = pieces.pop()
    deltas = [piece.choices[0] for piece in pieces]
    assert len(deltas) > 3
    assert "".join(delta.delta.content or "" for delta in deltas) == whole.choices[0].message.content
    assert [token for delta in deltas for token in delta.token_ids] == whole.choices[0].token_ids
    logprobs = [part.logprob for delta in deltas for part in delta.logprobs.content]
    assert logprobs == [part.logprob for part in whole.choices[0].logprobs.content]
    assert [delta.finish_reason for delta in deltas] == [None] * (len(deltas) - 1) + [whole.choices[0].finish_reason]
    assert counted.usage.completion_tokens == whole.usage.completion_tokens
    assert pieces[0].prompt_token_ids == whole.prompt_token_ids


def test_a_stop_text_ends_a_choice_and_is_in_its_tokens_only(ask):
    async def use(server, client):
        asked = {"model": "tiny", "prompt": [5, 6, 7], "max_tokens": 24, "seed": 5}
        own = {"return_token_ids": True, "ignore_eos": True}
        free = (await client.completions.create(**asked, extra_body=own)).choices[0]
        stop = free.text[6:8]
        cut = (await client.completions.create(**asked, stop=stop, extra_body=own)).choices[0]
        kept = await client.completions.create(**asked, stop=stop, extra_body={**own, "include_stop_str_in_output": True})
        stream = await client.completions.create(**asked, stop=stop, stream=True, extra_body=own)
        streamed = "".join([piece.choices[0].text async for piece in stream])
        return server.chat, free, stop, cut, kept.choices[0], streamed

    chat, free, stop, cut, kept, streamed = ask(use)
    place = free.text.index(stop)
    assert cut.text == streamed == free.text[:place]
    assert kept.text == free.text[: place + len(stop)]
    assert cut.finish_reason == "stop"
    assert cut.token_ids == free.token_ids[: len(cut.token_ids)]
    assert stop in chat.decode(np.array(cut.token_ids))


def test_a_client_that_goes_away_frees_its_slot(ask):
    async def use(server, client):
        asked = {"model": "tiny", "prompt": [5, 6, 7], "max_tokens": 50, "extra_body": {"ignore_eos": True}}
        server.engine.pause()  # so that none of them can end by itself
        tasks = [asyncio.create_task(client.completions.create(**asked)) for _ in range(6)]
        while server.engine.statistics().slots_busy + server.engine.statistics().waiting < 6:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while server.engine.statistics().slots_busy + server.engine.statistics().waiting:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        server.engine.resume()
        return (await client.completions.create(**asked)).choices[0].finish_reason

    assert ask(use) == "length"


@pytest.mark.parametrize(
    ("change", "status", "told"),
    [
        ({"model": "another"}, 404, "expected the model 'tiny'; got 'another'"),
        ({"prompt": [1, 99999]}, 400, "expected token ids from 0 to"),
        ({"prompt": [-1]}, 400, "expected token ids from 0 to"),
        ({"prompt": []}, 400, "expected a prompt; got an empty list"),
        ({"prompt": [1] * 64}, 400, "expected a prompt of at most 63 tokens"),
        ({"max_tokens": 5000}, 400, "expected max_tokens from 1 to 4096; got 5000"),
        ({"max_tokens": 0}, 400, "expected max_tokens from 1 to 4096; got 0"),
        ({"n": 65}, 400, "expected 1 to 64 choices"),
        ({"temperature": -1.0}, 400, "expected a temperature of 0"),
        ({"top_p": 3.0}, 400, "top_p above 0"),
        ({"logprobs": 5}, 400, "expected logprobs=0"),
        ({"presence_penalty": 0.5}, 400, "$.presence_penalty"),
        ({"extra_body": {"guided_regex": "a*"}}, 400, "unknown field `guided_regex`"),
        ({"extra_body": {"session": "s"}, "n": 2}, 400, "expected one choice with a session"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_not_served_is_refused_by_name(one_server, change, status, told):
    asked = {"model": "tiny", "prompt": [5, 6], "max_tokens": 4, **change}
    with pytest.raises(openai.APIStatusError) as refused:
        one_server(lambda client: client.completions.create(**asked))
    assert refused.value.status_code == status
    assert told in refused.value.message


@pytest.fixture(scope="module")
def one_server(serving: Any, tmp_path_factory: Any, request: Any):
    """One server for many refusals."""
    folder = request.getfixturevalue("pretrained_folder")
    with asyncio.Runner() as runner:
        context = serving(folder)
        server = runner.run(context.__aenter__())

        async def asked(use: Callable[[Any], Any]) -> Any:
            async with client_of(server.url) as client:
                return await use(client)

        yield lambda use: runner.run(asked(use))
        runner.run(context.__aexit__(None, None, None))


def test_requests_beyond_the_bound_are_told_when_to_come_again(ask):
    async def use(server, client):
        server.engine.pause()
        asked = {"model": "tiny", "prompt": [5], "max_tokens": 2}
        tasks = [asyncio.create_task(client.completions.create(**asked)) for _ in range(3)]
        while server.engine.statistics().slots_busy + server.engine.statistics().waiting < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        with pytest.raises(openai.RateLimitError) as refused:
            await client.completions.create(**asked)
        server.engine.resume()
        await asyncio.gather(*tasks)
        return refused.value.response, await client.completions.create(**asked)

    response, after = ask(use, limits={"requests": 3})
    assert response.headers["retry-after"] == "1"
    assert after.choices[0].finish_reason in ("length", "stop")
