"""A server on a free port of this machine, in the loop of the test: the real application, engine and HTTP, the model tiny."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from graphs.commands.chat import ChatConfig, find_speaker
from graphs.commands.serve import listen
from graphs.serving.config import ServeConfig
from stages.models.transformer import Transformer
from stages.rollout.config import EngineConfig
from stages.rollout.engine import Engine
from stages.text.chat import Chat

TOKEN = "a-token-of-a-test-0123456789"
ENGINE = EngineConfig(slots=4, context_length=64, prefill_rows=4, prefill_chunk=16)


@dataclass(frozen=True)
class Running:
    """A server that runs."""

    url: str
    engine: Engine
    chat: Chat
    model: Transformer
    token: str | None


@contextlib.asynccontextmanager
async def running(folder: Path, token: str | None = None, **settings: Any) -> AsyncIterator[Running]:
    import uvicorn

    from graphs.serving.app import Served, application

    config = ServeConfig(**{"engine": ENGINE, "port": 0, **settings})
    speaker = find_speaker(str(folder), ChatConfig())
    speaker.load()
    async with Engine(speaker.model, config.engine or ENGINE, decode=speaker.chat.decode) as engine:
        app = application(Served("tiny", speaker.model, engine, speaker.chat, config, token))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off", proxy_headers=False))
        # What a process does with signals is no matter of a test.
        server.capture_signals = contextlib.nullcontext
        with listen(config.host, config.port) as listening:
            task = asyncio.create_task(server.serve(sockets=[listening]))
            while not server.started:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            try:
                yield Running(f"http://127.0.0.1:{listening.getsockname()[1]}", engine, speaker.chat, speaker.model, token)
            finally:
                server.should_exit = server.force_exit = True
                await task


@pytest.fixture(scope="session")
def serving() -> Callable[..., contextlib.AbstractAsyncContextManager[Running]]:
    pytest.importorskip("uvicorn")
    pytest.importorskip("starlette")
    return running


@pytest.fixture(scope="session")
def token() -> str:
    return TOKEN
