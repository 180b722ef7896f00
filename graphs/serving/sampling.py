"""Samples the choices of a request, whole or piece by piece, and gives up when whoever asked has gone. No HTTP.

A choice that is not wanted any more frees its slot before the next step: its task is cancelled, which the engine ends it by.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from graphs.serving.answers import Answering
from graphs.serving.errors import Refused
from graphs.serving.texts import GrowingText
from stages.policy import PolicyEnded, Sample, SampleRequest
from stages.rollout.engine import Engine
from stages.rollout.steps import Token

T = TypeVar("T")


class Gone(Exception):
    """Whoever asked has closed the connection."""


async def sampled(engine: Engine, requests: list[SampleRequest]) -> list[Sample]:
    """All choices of a request.

    Raises:
        Refused: the engine refuses one of them, or has ended.
    """
    tasks = [asyncio.ensure_future(engine.sample(request)) for request in requests]
    try:
        return list(await asyncio.gather(*tasks))
    except Exception as error:
        raise _refusal(error) from error
    finally:
        await _ended(tasks)


async def pieces(engine: Engine, answering: Answering) -> AsyncIterator[dict[str, Any]]:
    """The pieces of all choices of a request, as they come, and the count of tokens where it is asked for.

    Raises:
        Refused: see ``sampled``.
    """
    said: asyncio.Queue[tuple[int, Token | Sample | Exception]] = asyncio.Queue()
    tasks = [asyncio.ensure_future(_speak(engine, request, index, said)) for index, request in enumerate(answering.requests)]
    choices = [_Choice(index, answering) for index in range(len(tasks))]
    samples: dict[int, Sample] = {}
    try:
        while len(samples) < len(tasks):
            index, what = await said.get()
            if isinstance(what, Exception):
                raise _refusal(what) from what
            if isinstance(what, Sample):
                samples[index] = what
                yield choices[index].last(what)
            elif (piece := choices[index].next(what)) is not None:
                yield piece
        options = answering.asked.stream_options
        if options is not None and options.include_usage:
            yield answering.counted([samples[index] for index in range(len(tasks))])
    finally:
        await _ended(tasks)


async def unless_gone(receive: Callable[[], Awaitable[Any]], work: Awaitable[T]) -> T:
    """Do work for whoever is on the other end of a connection, for as long as they are.

    Args:
        receive: of a request whose body was read.
        work: cancelled where the connection closes before it is done.

    Raises:
        Gone: it closed.
    """
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_closed(receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Gone
        return task.result()
    finally:
        await _ended([task, gone])


class _Choice:
    """What of one choice was given on."""

    def __init__(self, index: int, answering: Answering) -> None:
        self._index, self._answering = index, answering
        self._text: GrowingText = answering.text(index)
        self._given = 0
        self._ids: list[int] = []
        self._logprobs: list[float] = []

    def next(self, token: Token) -> dict[str, Any] | None:
        """A piece with the token, or ``None`` where its text has to wait, and its ids with it."""
        self._ids.append(token.id)
        self._logprobs.append(token.logprob)
        if not self._answering.by_token:
            return None
        text = self._text.feed(token.id)
        if not text:
            return None
        piece = self._answering.piece(self._index, text, self._ids, self._logprobs, first=not self._given)
        self._given += len(self._ids)
        self._ids, self._logprobs = [], []
        return piece

    def last(self, sample: Sample) -> dict[str, Any]:
        """The last piece."""
        heard = self._given + len(self._ids) if self._answering.by_token else 0
        text = self._text.finish(sample.ids[heard:].tolist())
        return self._answering.last(self._index, text, sample, self._given, first=not self._given)


async def _speak(engine: Engine, request: SampleRequest, index: int, said: asyncio.Queue[Any]) -> None:
    try:
        sample = await engine.sample(request, lambda token: said.put_nowait((index, token)))
    except Exception as error:
        said.put_nowait((index, error))
    else:
        said.put_nowait((index, sample))


async def _closed(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _ended(tasks: list[asyncio.Future[Any]]) -> None:
    """Cancel what is not done and wait for it, so that nothing of a request outlives it."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _refusal(error: Exception) -> Refused:
    if isinstance(error, PolicyEnded):
        return Refused(503, str(error), "server_error")
    if isinstance(error, ValueError):
        return Refused(400, str(error))
    return Refused(500, str(error), "server_error")
