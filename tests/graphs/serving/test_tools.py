"""Tools through the server: the official client calls one, answers, and reads what is made of it.

The model is a script here, since a tiny one calls nothing; application, chat format and HTTP are the real ones.
"""

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphs.commands.serve import listen
from graphs.serving.config import ServeConfig
from graphs.serving.texts import GrowingText
from stages.models.pretrained import describe_model
from stages.records import Message, ToolCall
from stages.rollout.steps import Token
from stages.scripted import ScriptedPolicy
from stages.text.pretrained import load_chat

TOOL = {
    "type": "function",
    "function": {
        "name": "add", "description": "Adds.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    },
}  # fmt: skip


class ScriptedEngine:
    """What the server needs of an engine, with a script for a model."""

    has_ended = False
    context_length = 2048

    def __init__(self, policy: ScriptedPolicy) -> None:
        self._policy = policy

    async def sample(self, request: Any, heard: Any = None) -> Any:
        sample = await self._policy.sample(request)
        for token, logprob in zip(sample.ids[:-1].tolist(), sample.logprobs[:-1].tolist(), strict=True):
            if heard is not None:
                heard(Token(token, logprob, 0))
                await asyncio.sleep(0)
        return sample

    def statistics(self) -> None:
        return None

    def release(self, session: str) -> None:
        pass


def says(talk: str, turn: int) -> Message:
    if "broken" in talk:
        return Message("assistant", '<tool_call>{"name": "add", "arguments": </tool_call>')
    if "<tool_response>" in talk or "tool\n" in talk:
        return Message("assistant", "It is 5.")
    return Message("assistant", "Let me see.", (ToolCall("0", "add", {"a": 2}), ToolCall("1", "add", {"a": 3})))


def served(folder: Path, use: Any) -> Any:
    openai = pytest.importorskip("openai")
    import uvicorn

    from graphs.serving.app import Served, application

    async def main() -> Any:
        chat = load_chat(folder)
        engine = ScriptedEngine(ScriptedPolicy(chat, says))
        app = application(Served("tiny", describe_model(folder), engine, chat, ServeConfig(port=0), None))  # type: ignore[arg-type]
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off"))
        server.capture_signals = contextlib.nullcontext
        with listen("127.0.0.1", 0) as listening:
            task = asyncio.create_task(server.serve(sockets=[listening]))
            url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
            try:
                async with openai.AsyncOpenAI(base_url=url, api_key="none") as client:
                    return await use(client)
            finally:
                server.should_exit = server.force_exit = True
                await task

    return asyncio.run(main())


@pytest.mark.extra
@pytest.mark.slow
def test_a_tool_is_called_and_its_reply_is_read(pretrained_folder):
    async def use(client):
        messages: list[Any] = [{"role": "user", "content": "What is the sum of 2 and 3?"}]
        first = (await client.chat.completions.create(model="tiny", messages=messages, tools=[TOOL])).choices[0]
        calls = first.message.tool_calls
        replies = [{"role": "tool", "tool_call_id": call.id, "content": "5"} for call in calls]
        messages += [first.message.model_dump(exclude_none=True), *replies]
        second = (await client.chat.completions.create(model="tiny", messages=messages, tools=[TOOL])).choices[0]
        return first, second

    first, second = served(pretrained_folder, use)
    assert first.finish_reason == "tool_calls"
    assert first.message.content.strip() == "Let me see."
    assert [(call.function.name, json.loads(call.function.arguments)) for call in first.message.tool_calls] == [
        ("add", {"a": 2}), ("add", {"a": 3}),
    ]  # fmt: skip
    assert len({call.id for call in first.message.tool_calls}) == 2
    assert (second.finish_reason, second.message.content, second.message.tool_calls) == ("stop", "It is 5.", None)


@pytest.mark.extra
@pytest.mark.slow
def test_a_streamed_call_is_whole_and_one_that_is_none_stays_text(pretrained_folder):
    async def use(client):
        asked = {"model": "tiny", "tools": [TOOL], "stream": True}
        call = await client.chat.completions.create(messages=[{"role": "user", "content": "2 and 3?"}], **asked)
        pieces = [piece.choices[0] async for piece in call]
        broken = await client.chat.completions.create(messages=[{"role": "user", "content": "broken"}], **asked)
        text = "".join([piece.choices[0].delta.content or "" async for piece in broken])
        untold = {
            "model": "tiny",
            "messages": [{"role": "user", "content": "2 and 3?"}],
            "tools": [TOOL],
            "tool_choice": "none",
        }
        return pieces, text, (await client.chat.completions.create(**untold)).choices[0]

    pieces, text, untold = served(pretrained_folder, use)
    calls = [call for piece in pieces for call in piece.delta.tool_calls or ()]
    assert [(call.index, call.function.name, json.loads(call.function.arguments)) for call in calls] == [
        (0, "add", {"a": 2}), (1, "add", {"a": 3}),
    ]  # fmt: skip
    assert pieces[-1].finish_reason == "tool_calls"
    assert text == '<tool_call>{"name": "add", "arguments": </tool_call>'
    assert untold.message.tool_calls is None
    assert "<tool_call>" in untold.message.content


@pytest.mark.extra
@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"messages": []}, "expected at least one message"),
        ({"messages": [{"role": "tool", "content": "5"}]}, "expected the tool_call_id"),
        ({"messages": [{"role": "robot", "content": "5"}]}, "$.messages[0].role"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "$.messages[0].content",
        ),
        ({"tool_choice": "required"}, "$.tool_choice"),
        ({"response_format": {"type": "json_object"}}, "$.response_format.type"),
        ({"logprobs": True, "top_logprobs": 3}, "$.top_logprobs"),
    ],
)
def test_a_chat_that_is_not_served_is_refused_by_name(pretrained_folder, change, told):
    openai = pytest.importorskip("openai")
    asked = {"model": "tiny", "messages": [{"role": "user", "content": "2 and 3?"}], "tools": [TOOL], **change}
    with pytest.raises(openai.BadRequestError) as refused:
        served(pretrained_folder, lambda client: client.chat.completions.create(**asked))
    assert told in refused.value.message


def test_text_that_grows_is_the_text_of_the_whole_and_gives_nothing_that_may_go():
    letters = {1: "a", 2: "b", 3: "c", 4: "END", 5: "EN", 6: "D"}

    def decode(ids: np.ndarray) -> str:
        # Two tokens that are halves of one character, as in byte-level vocabularies.
        return "".join(letters.get(int(token), "?") for token in ids).replace("??", "é").replace("?", "\ufffd")

    def grown(ids: list[int], stops: tuple[str, ...], keep: bool = False) -> list[str]:
        text = GrowingText(decode, (9,), stops, keep)
        return [*map(text.feed, ids[:-1]), text.finish(ids[-1:])]

    assert grown([1, 7, 8, 2, 9], ()) == ["a", "", "é", "b", ""]
    assert grown([1, 5, 6, 2], ("END",)) == ["a", "", "", ""]
    assert "".join(grown([1, 5, 6], ("END",), keep=True)) == "aEND"
    assert "".join(grown([1, 5, 2, 9], ("END",))) == "aENb"
    assert "".join(grown([1, 4, 3], ("c", "END"))) == "a"
    assert grown([1, 7, 9], ()) == ["a", "", "\ufffd"]
