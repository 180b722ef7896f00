"""A training whose engine is a server: it is the training with an engine in the process, to the bit."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from graphs.calculator import calculator
from graphs.commands.serve import listen
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


def steps_of(folder: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    kept = ("step", "loss", "reward_mean", "engine_gap", "gradient_norm", "success")
    return [{name: row[name] for name in kept if name in row} for row in rows if "step" in row]


@pytest.mark.extra
@pytest.mark.slow
def test_a_training_over_a_server_is_the_training_in_the_process_to_the_bit(config, run, token, tmp_path, monkeypatch):
    pytest.importorskip("uvicorn")
    pytest.importorskip("starlette")
    monkeypatch.setenv("HEADRACE_TOKEN", token)
    here = run(calculator(config()), tmp_path / "here")
    weights = tmp_path / "weights"
    with ServerThread(config(), token, weights) as url:
        servers = HttpConfig(urls=(url,), weights=weights, slots=16, context_length=64)
        there = run(calculator(config(servers=servers)), tmp_path / "there")
    assert steps_of(tmp_path / "here") == steps_of(tmp_path / "there")
    assert len(steps_of(tmp_path / "here")) >= 3
    scores = ("heldout_before", "heldout_after")
    assert [here[name] for name in scores] == [there[name] for name in scores]
    assert here["hashes"]["parameters"] == there["hashes"]["parameters"]
