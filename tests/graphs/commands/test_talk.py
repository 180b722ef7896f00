"""Talks with a real engine over a tiny model: pieces are the whole, ids only grow, and what is cut stays said."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphs.commands.chat import ChatConfig, Speaker, engine_config, find_speaker
from graphs.commands.talk import Talk
from stages.policy import SampleRequest
from stages.records import Message
from stages.rollout.engine import Engine

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def speaker(pretrained_folder: Path) -> Speaker:
    found = find_speaker(str(pretrained_folder), ChatConfig())
    found.load()
    return found


@pytest.fixture
def talking(speaker: Speaker) -> Callable[..., Any]:
    @asynccontextmanager
    async def opened(max_tokens: int = 12, temperature: float = 1.0, context: int = 64) -> AsyncIterator[tuple[Talk, Engine]]:
        async with Engine(speaker.model, engine_config(speaker.model, ChatConfig(context=context))) as engine:
            yield Talk(engine, speaker.chat, speaker.opening, temperature=temperature, max_tokens=max_tokens, seed=3), engine

    return opened


def test_an_answer_in_pieces_is_the_one_that_a_single_request_gives(talking: Callable[..., Any], speaker: Speaker) -> None:
    async def both() -> tuple[Any, ...]:
        async with talking() as (talk, engine):
            pieces: list[str] = []
            answer = await talk.answer("What is two?", pieces.append)
            context = speaker.chat.open([Message("user", "What is two?")], ())
            whole = await engine.sample(SampleRequest(context, 12, speaker.chat.stop_ids, 1.0, (3, 0, 0, 0, 0), "other"))
            return pieces, answer, context, whole, talk.ids

    pieces, answer, context, whole, ids = asyncio.run(both())
    assert answer.num_tokens == len(whole.ids) > 1
    kept = whole.ids[:-1] if whole.stop_reason == "stop" else whole.ids
    assert ids.tolist() == [*context, *kept, speaker.chat.stop_ids[0]]
    assert "".join(pieces) == speaker.chat.decode(kept)


def test_questions_are_appended_and_nothing_cached_is_read_in_again(talking: Callable[..., Any]) -> None:
    async def two() -> tuple[list[int], list[int], int, int]:
        async with talking(max_tokens=5) as (talk, engine):
            await talk.answer("one", lambda text: None)
            before, read = talk.ids.tolist(), engine.statistics().prefilled_tokens
            await talk.answer("two", lambda text: None)
            return before, talk.ids.tolist(), read, engine.statistics().prefilled_tokens

    before, after, read, read_after = asyncio.run(two())
    assert after[: len(before)] == before
    # Of the first turn only its last tokens, those that closed it, are new to the cache.
    assert read_after - read < len(after) - len(before) + 2


def test_a_new_talk_begins_as_the_first_one_did(talking: Callable[..., Any]) -> None:
    async def again() -> tuple[list[int], list[int]]:
        async with talking(temperature=0.0) as (talk, _):
            await talk.answer("one", lambda text: None)
            first = talk.ids.tolist()
            talk.restart()
            await talk.answer("one", lambda text: None)
            return first, talk.ids.tolist()

    first, second = asyncio.run(again())
    assert first == second


def test_a_cut_answer_is_closed_and_the_talk_goes_on(talking: Callable[..., Any], speaker: Speaker) -> None:
    async def cut() -> tuple[list[int], list[int], str]:
        async with talking(max_tokens=40) as (talk, _):
            said: list[str] = []

            def say(text: str) -> None:
                said.append(text)
                if len(said) == 1:
                    task.cancel()

            task = asyncio.ensure_future(talk.answer("one", say))
            with pytest.raises(asyncio.CancelledError):
                await task
            partial = talk.ids.tolist()
            await talk.answer("two", lambda text: None)
            return partial, talk.ids.tolist(), "".join(said)

    partial, after, said = asyncio.run(cut())
    opened = speaker.chat.open([Message("user", "one")], ()).tolist()
    assert partial[: len(opened)] == opened
    assert partial[-1] == speaker.chat.stop_ids[0]
    assert speaker.chat.decode(np.array(partial[len(opened) : -1])).startswith(said)
    assert after[: len(partial)] == partial


def test_a_question_too_long_is_refused_and_the_talk_stays_as_it_was(talking: Callable[..., Any]) -> None:
    async def long() -> tuple[list[int], list[int], Any]:
        async with talking(max_tokens=30) as (talk, _):
            await talk.answer("one", lambda text: None)
            before = talk.ids.tolist()
            with pytest.raises(ValueError, match="expected a question that leaves room for an answer; got a talk of"):
                await talk.answer("what " * 40, lambda text: None)
            after = talk.ids.tolist()
            return before, after, await talk.answer("2", lambda text: None)

    before, after, last = asyncio.run(long())
    assert before == after
    assert last.ended == "context"
