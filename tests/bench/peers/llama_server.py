"""llama.cpp's own server as one of the systems: parallel slots, continuous batching, every request posted at once.

Greedy by the cheapest of its samplers that gives the most likely token. Prompts are read in anew each round, as for everybody.
"""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from script import Measured
from workload import CONTEXT, Request, read, warm_up

from graphs.bench.engines.llama import LlamaProcess


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
        options = {
            "parallel": slots,
            "ctx-size": slots * CONTEXT,
            "threads-http": len(read()) + 2,
            "cache-type-k": cache_type,
            "cache-type-v": cache_type,
        }
        self._server = LlamaProcess(program, model, options, log)

    def __enter__(self) -> "LlamaServer":
        self._server.__enter__()
        try:
            self._answer(warm_up(read()))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.__exit__(None, None, None)

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
        # A character may take more tokens than there was room for: the server then makes some more.
        return self._server.post("completion", wanted)["tokens"][: request.num_tokens]

    def _processor_seconds(self) -> float:
        fields = Path(f"/proc/{self._server.pid}/stat").read_text().rsplit(")", 1)[1].split()
        # Fields 14 and 15 of the whole line: user and system time, in ticks.
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
