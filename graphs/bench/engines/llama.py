"""llama.cpp's server as an engine: an implementation of the model that shares nothing with ours, asked over HTTP.

It is asked for the most likely tokens only, since its rule of the draw is another one. The server is the one that
``make bench-peers`` builds; new weights reach it as a file, with which it is started anew.
"""

import asyncio
import json
import os
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from flax import nnx

from stages.models.gguf import write_gguf
from stages.models.transformer import Transformer
from stages.policy import Sample, SampleRequest
from stages.records import Weights

OPENS_S = 120.0
"""Most seconds until a server answers."""
ANSWERS_S = 600.0
"""Most seconds that an answer takes."""


class LlamaProcess:
    """A server process, a context manager.

    Args:
        program: the server.
        model: GGUF file.
        options: of its command line, by name.
        log: where its output goes.

    Attributes:
        pid: of the process.

    Raises:
        RuntimeError: on entry; it did not open.
    """

    def __init__(self, program: Path, model: Path, options: Mapping[str, Any], log: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        threads = len(os.sched_getaffinity(0))
        named = {"model": model, "port": self._port, "threads": threads, "threads-batch": threads, "cache-ram": 0, **options}
        self._command = [str(program), "--no-kv-unified", "--no-ui"]
        self._command += [str(part) for name, value in named.items() for part in (f"--{name}", value)]
        self._log = log

    def __enter__(self) -> Self:
        with self._log.open("w") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=subprocess.STDOUT)
        self.pid = self._process.pid
        try:
            self._wait_open()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._port}"

    def post(self, path: str, asked: Mapping[str, Any]) -> Any:
        """Ask it, as JSON; gives the answer."""
        body, kind = json.dumps(asked).encode(), {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(self._url(path), body, kind), timeout=ANSWERS_S) as answer:
            return json.load(answer)

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()

    def _url(self, path: str) -> str:
        return f"{self.url}/{path}"

    def _wait_open(self) -> None:
        last = time.monotonic() + OPENS_S
        while time.monotonic() < last and self._process.poll() is None:
            try:
                with urllib.request.urlopen(self._url("health"), timeout=5):
                    return
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.05)
        raise RuntimeError(f"expected an open llama-server, got none; see {self._log}:\n{self._log.read_text()[-2000:]}")


class LlamaPolicy:
    """A ``Candidate`` over a llama.cpp server. An async context manager.

    Args:
        program: the server.
        model: whose weights it has at first.
        tokens: text of each id.
        stop_id: id after which a turn ends.
        slots: requests at once.
    """

    def __init__(self, program: Path, model: Transformer, tokens: Sequence[str], stop_id: int, slots: int) -> None:
        self._program, self._tokens, self._stop_id, self._slots = program, tokens, stop_id, slots
        self._graph, self._parameters = nnx.split(model, nnx.Param)
        self._context_length, self._version = model.config.context_length, 0
        self._server: LlamaProcess | None = None

    async def __aenter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="headrace-llama-")
        await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        self._folder.cleanup()

    async def load(self, weights: Weights, version: int) -> None:
        """Write the weights and start the server with them."""
        self._parameters, self._version = weights.parameters, version
        self._stop()
        await self._start()

    async def sample(self, request: SampleRequest) -> Sample:
        """See ``Policy.sample``; at temperature 0 only.

        Raises:
            ValueError: it is to draw.
        """
        if request.temperature != 0 or request.stop_strings:
            raise ValueError(
                f"expected a request at temperature 0 without stop strings; got temperature={request.temperature:g}, in "
                "LlamaPolicy.sample; its rule of the draw is not ours"
            )
        assert self._server is not None
        answer = await asyncio.to_thread(
            self._server.post,
            "completion",
            {
                "prompt": request.ids.tolist(), "n_predict": request.max_tokens, "samplers": ["top_k"], "top_k": 1,
                "cache_prompt": False, "return_tokens": True, "n_probs": 1,
            },
        )  # fmt: skip
        told = answer["completion_probabilities"]
        ids, stop = [token["id"] for token in told], "stop" if answer["stop_type"] == "eos" else "length"
        versions = np.full(len(ids), self._version, np.int32)
        return Sample(np.array(ids, np.int32), np.array([token["logprob"] for token in told], np.float32), versions, stop)

    def release(self, session: str) -> None:
        """Nothing is kept."""

    def abort(self, session: str) -> None:
        """Nobody asks for it here."""

    async def _start(self) -> None:
        path = Path(self._folder.name) / "model.gguf"
        write_gguf(nnx.merge(self._graph, self._parameters), path, self._tokens, self._stop_id)
        # Its flash attention would be off by some 4e-3 nats.
        options = {
            "parallel": self._slots, "ctx-size": self._slots * self._context_length, "cache-type-k": "f32",
            "cache-type-v": "f32", "flash-attn": "off", "threads-http": self._slots + 2,
        }  # fmt: skip
        server = LlamaProcess(self._program, path, options, path.with_name("log"))
        self._server = await asyncio.to_thread(server.__enter__)

    def _stop(self) -> None:
        if self._server is not None:
            self._server.__exit__(None, None, None)
            self._server = None
