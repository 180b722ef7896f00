"""llama.cpp's own server as one of the systems: parallel slots, continuous batching, every request posted at once.

Greedy by the cheapest of its samplers that gives the most likely token. Prompts are read in anew each round, as for everybody.
"""

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from script import Measured
from workload import CONTEXT, Request, read, warm_up

SECONDS_TO_OPEN = 120.0
SECONDS_TO_ANSWER = 600.0


class LlamaServer:
    """A running server, a context manager.

    Args:
        program: the server.
        model: GGUF file.
        slots: requests it decodes at once.
        cache_type: of keys and values, ``f32`` or ``f16``.
        log: where its output goes.
    """

    def __init__(self, program: Path, model: Path, slots: int, cache_type: str, log: Path):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        threads = str(len(os.sched_getaffinity(0)))
        options = {
            "--model": model,
            "--port": self._port,
            "--parallel": slots,
            "--ctx-size": slots * CONTEXT,
            "--threads": threads,
            "--threads-batch": threads,
            "--threads-http": len(read()) + 2,
            "--cache-type-k": cache_type,
            "--cache-type-v": cache_type,
            "--cache-ram": 0,
        }
        self._command = [str(program), "--no-kv-unified", "--no-ui", *(str(part) for pair in options.items() for part in pair)]
        self._log = log

    def __enter__(self) -> "LlamaServer":
        with self._log.open("w") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=subprocess.STDOUT)
        try:
            self._wait_open()
            self._answer(warm_up(read()))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._process.kill()
        self._process.wait()

    def measure(self) -> Measured:
        """One round of the workload."""
        return self._answer(read())

    def _answer(self, requests: list[Request]) -> Measured:
        with ThreadPoolExecutor(len(requests)) as threads:
            begun, worked = time.perf_counter(), self._processor_seconds()
            replies = list(threads.map(self._complete, requests))
            seconds, worked = time.perf_counter() - begun, self._processor_seconds() - worked
        return Measured(seconds, replies, worked, {})

    def _complete(self, request: Request) -> list[int]:
        wanted = {
            "prompt": request.prompt,
            "n_predict": request.num_tokens,
            "ignore_eos": True,
            "samplers": ["top_k"],
            "top_k": 1,
            "cache_prompt": False,
            "return_tokens": True,
            "response_fields": ["tokens"],
        }
        posted = urllib.request.Request(
            self._url("completion"), json.dumps(wanted).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(posted, timeout=SECONDS_TO_ANSWER) as answer:
            # A character may take more tokens than there was room for: the server then makes some more.
            return json.load(answer)["tokens"][: request.num_tokens]

    def _processor_seconds(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        # Fields 14 and 15 of the whole line: user and system time, in ticks.
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._port}/{path}"

    def _wait_open(self) -> None:
        last = time.monotonic() + SECONDS_TO_OPEN
        while time.monotonic() < last and self._process.poll() is None:
            try:
                with urllib.request.urlopen(self._url("health"), timeout=5):
                    return
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
        raise RuntimeError(f"expected an open llama-server, got none; see {self._log}:\n{self._log.read_text()[-2000:]}")
