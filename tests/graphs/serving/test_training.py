"""A training whose engine is a server: it is the training with an engine in the process, to the bit."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from graphs.calculator import calculator
from graphs.commands.serve import listen
from graphs.runs.equal import unequal
from graphs.serving.config import ServeConfig
from stages.rollout.engine import Engine
from stages.rollout.http.config import HttpConfig


class ServerThread:
    """The server of a program's first weights, on a loop of its own."""

    def __init__(self, config: Any, token: str, weights: Path) -> None:
        self._config, self._token, self._weights = config, token, weights
        self._up = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)

    def __enter__(self) -> str:
        self._thread.start()
        assert self._up.wait(120)
        return self.url

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(60)

    async def _main(self) -> None:
        import uvicorn

        from graphs.serving.app import Served, application

        parts = calculator(self._config).parts
        assert parts is not None
        parts.load()
        serve = ServeConfig(port=0, weights=self._weights, engine=self._config.engine)
        async with Engine(parts.model, self._config.engine, decode=parts.chat.decode) as engine:
            app = application(Served("calculator", parts.model, engine, parts.chat, serve, self._token))
            options = {"log_level": "warning", "access_log": False, "lifespan": "off", "proxy_headers": False}
            self._server = uvicorn.Server(uvicorn.Config(app, **options))
            with listen("127.0.0.1", 0) as listening:
                self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
                task = asyncio.create_task(self._server.serve(sockets=[listening]))
                while not self._server.started:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                self._up.set()
                await task


@pytest.mark.extra
@pytest.mark.slow
def test_a_training_over_a_server_is_the_training_in_the_process_to_the_bit(config, run, token, tmp_path, monkeypatch):
    pytest.importorskip("uvicorn")
    pytest.importorskip("starlette")
    monkeypatch.setenv("HEADRACE_TOKEN", token)
    run(calculator(config()), tmp_path / "here")
    weights = tmp_path / "weights"
    with ServerThread(config(), token, weights) as url:
        servers = HttpConfig(urls=(url,), weights=weights, slots=16, context_length=64)
        run(calculator(config(servers=servers)), tmp_path / "there")
    assert unequal(tmp_path / "here", tmp_path / "there") == []
