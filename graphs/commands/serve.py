"""``headrace serve``: a model, or what a run learned, behind OpenAI's interface. What it answers is in ``graphs/serving``.

It also serves the first weights of a program that trains from scratch, so that it can be the engine of that training.
"""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from graphs.catalogue import CATALOGUE
from graphs.commands.chat import LONGEST_DEFAULT, PREFILL_CHUNK, ChatConfig, Speaker, find_speaker
from graphs.commands.command_line import Work, tell
from graphs.serving.app import Served, application
from graphs.serving.config import ServeConfig, read_token
from graphs.settings import read_settings
from stages.models.lora import has_adapters, merged
from stages.models.transformer import Transformer
from stages.packages import optional_package
from stages.rollout.config import EngineConfig
from stages.rollout.engine import Engine

SLOTS = 32
"""Requests decoded at once where nobody says how many."""
CLOSING_S = 10
"""Most seconds that requests under way get to end when the server is told to."""


def serve(arguments: list[str]) -> Work:
    """Serve a model, or what a run learned.

    Raises:
        ValueError, LookupError, OSError, ImportError: what the user can mend.
    """
    name, *rest = arguments
    config = read_settings(ServeConfig, rest, f"headrace serve {name}")
    uvicorn = optional_package("uvicorn", "serve", "headrace serve")
    token = read_token(config)
    speaker = to_serve(name, config)
    listening = listen(config.host, config.port)

    def work() -> None:
        with listening:
            speaker.load()
            asyncio.run(_serve(uvicorn, speaker, config, token, listening, config.name or Path(name).name))

    return work


def to_serve(name: str, config: ServeConfig) -> Speaker:
    """What is served: a model, what a run learned, or the first weights of a program that trains from scratch.

    Raises:
        ValueError, LookupError, OSError, ImportError: there is none of the name, or it cannot be read.
    """
    if name in CATALOGUE:
        entry = CATALOGUE[name]
        parts = entry.make(entry.config()).parts
        assert parts is not None, "every ready program has parts"
        return Speaker(parts.model, parts.load, parts.chat, parts.opening)
    return find_speaker(name, ChatConfig(revision=config.revision))


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens, taken before the model is loaded.

    Raises:
        ValueError: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends at once what is written only where the protocol is named; else an answer waits 40 ms for its second half.
    taken = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((host, port))
    except OSError as error:
        taken.close()
        raise ValueError(
            f"expected an address that can be listened at, got {host}:{port}: {error.strerror or error}, in --host and --port; "
            "choose another port, or 0 for any"
        ) from error
    return taken


def engine_config(model: Transformer, config: ServeConfig) -> EngineConfig:
    """Shapes of the engine."""
    if config.engine is not None:
        return config.engine
    length = min(model.config.context_length, LONGEST_DEFAULT)
    return EngineConfig(slots=SLOTS, prefill_chunk=min(PREFILL_CHUNK, length), context_length=length)


async def _serve(
    uvicorn: Any, speaker: Speaker, config: ServeConfig, token: str | None, listening: socket.socket, name: str
) -> None:
    # New weights come without adapters, so those that a run trained are folded in once.
    model = merged(speaker.model) if has_adapters(speaker.model) else speaker.model
    async with Engine(model, engine_config(model, config), decode=speaker.chat.decode) as engine:
        app = application(Served(name, model, engine, speaker.chat, config, token))
        options = {"log_level": "warning", "access_log": False, "server_header": False}
        # Who asks is whoever is on the other end: no header is believed to name another.
        options |= {"lifespan": "off", "proxy_headers": False, "timeout_graceful_shutdown": CLOSING_S}
        server = uvicorn.Server(uvicorn.Config(app, **options))
        ended = asyncio.create_task(_when_ended(engine, lambda: setattr(server, "should_exit", True)))
        host, port = listening.getsockname()[:2]
        who = "to whoever has the token" if token is not None else "to this machine alone"
        tell(f"serving {name} at http://{f'[{host}]' if ':' in host else host}:{port}/v1, {who}; end it with Ctrl-C")
        try:
            await server.serve(sockets=[listening])
        finally:
            ended.cancel()
        if engine.has_ended:
            raise RuntimeError("expected a running engine; got one that has ended, in headrace serve; its cause is above")


async def _when_ended(engine: Engine, stop: Callable[[], object]) -> None:
    """A server whose engine has died ends: whoever started it can start another, and nobody gets errors for ever."""
    await engine.wait_ended()
    stop()
