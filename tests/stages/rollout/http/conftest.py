"""Servers of vLLM's and SGLang's interface that run here: written from their documentation, since neither runs on this machine.

They are strict: a field that the documentation does not have, a type that is another, or an order of calls that would lose a
token is answered with an error. What they "sample" is a function of the context and of the version in force, so that a test
knows each token. They speak HTTP over real sockets. Tokens come one by one, as many as a test has let go (``let``).
"""

import contextlib
import json
import select
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from safetensors import safe_open

VOCABULARY = 29


def token_after(context: list[int], version: int) -> int:
    """What the fakes sample: never 0, which tests take as the stop token."""
    return 1 + (sum(context) + 7 * version) % (VOCABULARY - 1)


class Fault(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers or {}


class Fake(ThreadingHTTPServer):
    """What both have in common."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, token: str | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.token, self.version, self.paused = token, 0, False
        self.changed = threading.Condition()
        self.permits: float = float("inf")
        self.running: dict[str, bool] = {}
        """Requests under way, and whether each is aborted."""
        self.asked: list[tuple[str, Any]] = []
        self.faults: list[Fault | None] = []
        """What the next samplings are answered with; ``None`` closes the connection without a word."""
        self.reload_fault: Fault | None = None
        self.connections: list[socket.socket] = []
        self.gone = 0
        """Requests whose client had gone."""
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.append(request)
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that its client has reset is no error of a server."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def stop(self) -> None:
        """As a process that ends: connections end too."""
        self.shutdown()
        self.server_close()
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def let(self, tokens: float) -> None:
        """Let so many more tokens be sampled, by all requests together."""
        with self.changed:
            self.permits += tokens
            self.changed.notify_all()

    def hold(self) -> None:
        """Let no token be sampled."""
        with self.changed:
            self.permits = 0

    def wait(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds."""
        with self.changed:
            assert self.changed.wait_for(holds, timeout=30)

    def generated(self, name: str, context: list[int], most: int, stops: list[int], connection: Any) -> tuple[list[int], str]:
        """Tokens of one request, and why it ended: stop, length or abort."""
        with self.changed:
            if name in self.running:
                raise Fault(400, f"Request id {name} already running")
            self.running[name] = False
            self.changed.notify_all()
        ids: list[int] = []
        try:
            while len(ids) < most:
                with self.changed:
                    while not self.running[name] and (self.paused or self.permits < 1):
                        self.changed.wait(0.01)
                        if select.select([connection], [], [], 0)[0] and not connection.recv(1, 2):
                            self.gone += 1
                            raise ConnectionError
                    if self.running[name]:
                        return ids, "abort"
                    self.permits -= 1
                    self.changed.notify_all()
                    ids.append(token_after([*context, *ids], self.version))
                if ids[-1] in stops:
                    return ids, "stop"
            return ids, "length"
        finally:
            with self.changed:
                del self.running[name]
                self.changed.notify_all()

    def abort(self, names: list[str] | None) -> None:
        with self.changed:
            for name in self.running if names is None else self.running.keys() & set(names):
                self.running[name] = True
            self.changed.notify_all()

    def pause(self, paused: bool) -> None:
        with self.changed:
            self.paused = paused
            self.changed.notify_all()

    def reload(self, folder: str) -> None:
        """Read every tensor, as a server would."""
        if not self.paused or self.running:
            raise Fault(500, "weights changed while requests were under way")
        if self.reload_fault is not None:
            raise self.reload_fault
        assert (Path(folder) / "config.json").is_file()
        with safe_open(Path(folder) / "model.safetensors", "np") as file:
            assert [file.get_tensor(name).shape for name in file.keys()]  # noqa: SIM118

    def answer(self, method: str, path: str, query: dict[str, str], body: Any, connection: Any) -> Any:
        raise NotImplementedError

    def expect(self, body: Any, fields: Mapping[str, type | tuple[type, ...]], optional: Mapping[str, Any]) -> None:
        """Refuse a body that is not of these fields and types."""
        if not isinstance(body, dict):
            raise Fault(400, "expected an object")
        for name, kind in {**fields, **optional}.items():
            if name in body and (not isinstance(body[name], kind) or (isinstance(body[name], bool) and kind is not bool)):
                raise Fault(400, f"{name}: expected {kind}, got {body[name]!r}")
        if missing := fields.keys() - body.keys():
            raise Fault(400, f"missing {sorted(missing)}")
        if unknown := body.keys() - fields.keys() - optional.keys():
            raise Fault(400, f"unknown {sorted(unknown)}")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Fake

    def do_GET(self) -> None:
        self._answer("GET", None)

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer("POST", json.loads(raw) if raw else None)

    def _answer(self, method: str, body: Any) -> None:
        split, fake = urlsplit(self.path), self.server
        fake.asked.append((split.path, body))
        headers: Mapping[str, str] = {}
        try:
            if fake.token is not None and self.headers.get("Authorization") != f"Bearer {fake.token}":
                raise Fault(401, "Unauthorized")
            if split.path in ("/v1/completions", "/generate") and fake.faults:
                fault = fake.faults.pop(0)
                if fault is None:
                    raise ConnectionError
                raise fault
            query = {name: values[0] for name, values in parse_qs(split.query).items()}
            status, said = 200, fake.answer(method, split.path, query, body, self.connection)
        except Fault as fault:
            status, said, headers = fault.status, {"error": str(fault)}, fault.headers
        except ConnectionError:
            self.close_connection = True
            return
        raw = b"" if said is None else json.dumps(said).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(raw)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: Any) -> None:
        pass


class FakeVllm(Fake):
    """vLLM in its development mode."""

    def answer(self, method: str, path: str, query: dict[str, str], body: Any, connection: Any) -> Any:
        match method, path:
            case "GET", "/health":
                return None
            case "GET", "/v1/models":
                return {"object": "list", "data": [{"id": "served", "object": "model"}]}
            case "GET", "/weight_info":
                return {"weight_version": str(self.version)}
            case "POST", "/pause":
                assert query.get("mode") in ("abort", "wait", "keep")
                self.pause(True)
                if query["mode"] == "abort":
                    self.abort(None)
                return {"status": "paused"}
            case "POST", "/resume":
                self.pause(False)
                return {"status": "resumed"}
            case "POST", "/abort_requests":
                self.expect(body, {"request_ids": list}, {})
                self.abort(body["request_ids"])
                return {"status": "aborted", "aborted": len(body["request_ids"])}
            case "POST", "/collective_rpc":
                self.expect(body, {"method": str}, {"args": list, "kwargs": dict, "timeout": (int, float)})
                if body["method"] != "reload_weights" or set(body["kwargs"]) != {"weights_path"}:
                    raise Fault(500, f"no such method: {body}")
                self.reload(body["kwargs"]["weights_path"])
                return {"results": [None]}
            case "POST", "/reset_prefix_cache":
                return None
            case "POST", "/update_weight_version":
                self.expect(body, {"new_version": str}, {})
                self.version = self.named(int(body["new_version"]))
                return {"success": True, "new_version": body["new_version"]}
            case "POST", "/v1/completions":
                return self._completion(body, connection)
        raise Fault(404, f"no {method} {path}")

    def named(self, version: int) -> int:
        return version

    def _completion(self, body: Any, connection: Any) -> Any:
        fields = {"model": str, "prompt": list, "max_tokens": int, "request_id": str, "return_token_ids": bool, "logprobs": int}
        optional = {
            "temperature": (int, float), "top_p": (int, float), "top_k": int, "min_p": (int, float), "stop_token_ids": list,
            "ignore_eos": bool, "seed": int, "stop": list, "include_stop_str_in_output": bool, "skip_special_tokens": bool,
            "spaces_between_special_tokens": bool,
        }  # fmt: skip
        self.expect(body, fields, optional)
        if body["model"] != "served":
            raise Fault(404, "The model does not exist")
        ids, reason = self.generated(
            body["request_id"], body["prompt"], body["max_tokens"], body["stop_token_ids"], connection
        )  # fmt: skip
        logprobs = {"tokens": [str(token) for token in ids], "token_logprobs": [-0.5 * token for token in ids]}
        choice = {
            "index": 0, "text": "", "finish_reason": reason, "stop_reason": None, "token_ids": ids, "logprobs": logprobs,
            "prompt_token_ids": body["prompt"],
        }  # fmt: skip
        usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": len(ids), "prompt_tokens_details": None}
        return {"id": body["request_id"], "object": "text_completion", "choices": [choice], "usage": usage}


class FakeSglang(Fake):
    """SGLang's native interface."""

    tells: int | None = None
    """A version that its answers tell instead of the one in force."""

    def answer(self, method: str, path: str, query: dict[str, str], body: Any, connection: Any) -> Any:
        match method, path:
            case "GET", "/health":
                return None
            case "GET", "/model_info":
                return {"model_path": "served", "weight_version": str(self.version), "is_generation": True}
            case "POST", "/pause_generation":
                self.expect(body, {}, {"mode": str})
                self.pause(True)
                if body.get("mode", "abort") == "abort":
                    self.abort(None)
                return {"message": "Generation paused successfully.", "status": "ok"}
            case "POST", "/continue_generation":
                self.pause(False)
                return {"message": "Generation continued successfully.", "status": "ok"}
            case "POST", "/abort_request":
                self.expect(body, {}, {"rid": str, "abort_all": bool})
                self.abort(None if body.get("abort_all") else [body["rid"]])
                return None
            case "POST", "/update_weights_from_disk":
                self.expect(
                    body, {"model_path": str}, {"load_format": str, "weight_version": str, "flush_cache": bool,
                    "abort_all_requests": bool},
                )  # fmt: skip
                try:
                    self.reload(body["model_path"])
                except Fault as fault:
                    return {"success": False, "message": str(fault), "num_paused_requests": 0}
                self.version = int(body["weight_version"])
                return {"success": True, "message": "Succeeded to update model weights.", "num_paused_requests": 0}
            case "POST", "/generate":
                return self._generate(body, connection)
        raise Fault(404, f"no {method} {path}")

    def _generate(self, body: Any, connection: Any) -> Any:
        self.expect(body, {"input_ids": list, "sampling_params": dict, "return_logprob": bool}, {"rid": str, "stream": bool})
        sampling = body["sampling_params"]
        number = (int, float)
        optional = {
            "temperature": number, "top_p": number, "top_k": int, "min_p": number, "stop_token_ids": list, "stop": list,
            "ignore_eos": bool, "no_stop_trim": bool, "skip_special_tokens": bool, "spaces_between_special_tokens": bool,
            "sampling_seed": int,
        }  # fmt: skip
        self.expect(sampling, {"max_new_tokens": int}, optional)
        if sampling["top_k"] == 0 or sampling["top_k"] < -1:
            raise Fault(400, "top_k must be -1 (disable), or at least 1")
        ids, reason = self.generated(
            body["rid"], body["input_ids"], sampling["max_new_tokens"], sampling["stop_token_ids"], connection
        )  # fmt: skip
        version = self.version if self.tells is None else self.tells
        meta = {
            "id": body["rid"], "finish_reason": {"type": reason}, "prompt_tokens": len(body["input_ids"]),
            "completion_tokens": len(ids), "cached_tokens": 2, "weight_version": str(version),
            "output_token_logprobs": [[-0.5 * token, token, None] for token in ids],
        }  # fmt: skip
        return {"text": "", "output_ids": ids, "meta_info": meta}


@pytest.fixture
def fakes() -> Iterator[Callable[..., Any]]:
    """Makes fakes: ``fakes("vllm")``."""
    made: list[Fake] = []

    def make(kind: str, **settings: Any) -> Fake:
        made.append({"vllm": FakeVllm, "sglang": FakeSglang}[kind](**settings))
        return made[-1]

    yield make
    for fake in made:
        fake.stop()


@pytest.fixture(scope="session")
def sampled() -> Callable[..., list[int]]:
    """What a fake samples: ``sampled(context, versions)``, a token a version."""

    def run(context: list[int], versions: list[int]) -> list[int]:
        ids: list[int] = []
        for version in versions:
            ids.append(token_after([*context, *ids], version))
        return ids

    return run


@pytest.fixture(scope="session")
def fault() -> type[Fault]:
    return Fault
