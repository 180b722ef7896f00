"""The routes of the server, over an engine that is open. What each says is in the files beside this one."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from graphs.serving.answers import Answering
from graphs.serving.asking import COMPLETION_TOKENS, Bounds, prompts_of, requests_of
from graphs.serving.config import ServeConfig
from graphs.serving.control import MODES, Control
from graphs.serving.conversation import opened
from graphs.serving.desk import Desk
from graphs.serving.errors import Refused
from graphs.serving.guard import App, Guard, Receive, Scope, Send, answer
from graphs.serving.metrics import Metrics
from graphs.serving.sampling import Gone, pieces, sampled, unless_gone
from graphs.serving.wire import ChatCompletion, Completion, parsed
from stages.models.transformer import Transformer
from stages.packages import optional_package
from stages.policy import SampleRequest
from stages.rollout.engine import Engine
from stages.text.chat import Chat

GONE = 499
"""Status that metrics give a request whose client had gone. Nobody is sent it."""
GUARDED = frozenset(
    {"/pause", "/resume", "/is_paused", "/abort_requests", "/collective_rpc", "/update_weight_version", "/weight_info"}
)
"""Paths that take a token whatever the server listens at: they change what others are answered."""
_NAMES = itertools.count(1)


@dataclass(frozen=True)
class Served:
    """What a server has.

    Attributes:
        name: what clients call it.
        model: the decoder.
        engine: samples from it; open.
        chat: its format.
        config: of the server.
        token: that clients must have; ``None`` for none.
    """

    name: str
    model: Transformer
    engine: Engine
    chat: Chat
    config: ServeConfig
    token: str | None


class _Rpc(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``/collective_rpc``, as vLLM has it."""

    method: str
    kwargs: dict[str, str]
    args: list[str] = []
    timeout: float | None = None


class _Version(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``/update_weight_version``, as vLLM has it."""

    new_version: str


class _Aborted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``/abort_requests``, as vLLM has it."""

    request_ids: list[str] | None = None


class _Released(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``/v1/sessions/release``."""

    sessions: list[str]


def application(served: Served) -> App:
    """The server as an ASGI application. Entered and left with its engine."""
    routing = optional_package("starlette.routing", "serve", "headrace serve")
    server = _Server(served)
    handlers: list[tuple[str, str, _Handler]] = [
        ("GET", "/health", server.health),
        ("GET", "/metrics", server.metrics),
        ("GET", "/v1/models", server.models),
        ("POST", "/v1/completions", server.completions),
        ("POST", "/v1/chat/completions", server.chat_completions),
        ("POST", "/v1/sessions/release", server.release),
        ("POST", "/pause", server.pause),
        ("POST", "/resume", server.resume),
        ("GET", "/is_paused", server.is_paused),
        ("POST", "/abort_requests", server.abort),
        ("POST", "/collective_rpc", server.collective_rpc),
        ("POST", "/update_weight_version", server.update_version),
        ("GET", "/weight_info", server.weight_info),
    ]
    routes = [routing.Route(path, _Endpoint(server, path, handler), methods=[method]) for method, path, handler in handlers]
    return Guard(routing.Router(routes), served.token, GUARDED)


class Call:
    """One request, as handlers see it.

    Args:
        scope: of ASGI.
        receive: of ASGI.
        send: of ASGI.

    Attributes:
        receive: of ASGI.
        status: of the answer, once it has begun.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.receive, self._send = receive, send
        self._headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        self.query = dict(part.partition("=")[::2] for part in scope["query_string"].decode("latin-1").split("&") if part)
        self.status: int | None = None

    def header(self, name: str) -> str | None:
        """A header."""
        return self._headers.get(name.encode())

    async def body(self, most: int, most_s: float) -> bytes:
        """All of the body.

        Raises:
            Refused: it is longer, takes longer, or is not JSON.
            Gone: the client had gone.
        """
        kind = self.header("content-type") or ""
        if kind.partition(";")[0].strip().lower() != "application/json":
            raise Refused(415, f"expected JSON; got {kind or 'no type'}, in Content-Type; send application/json")
        length = self.header("content-length") or ""
        if length.isdigit() and int(length) > most:
            raise _too_long(most, int(length))
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(most_s):
                while True:
                    message = await self.receive()
                    if message["type"] == "http.disconnect":
                        raise Gone
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > most:
                        raise _too_long(most, size)
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError as error:
            raise Refused(408, f"expected a body within {most_s:g} s; got {size} bytes by then; send it faster") from error

    async def send(self, status: int, body: bytes, kind: str = "application/json") -> None:
        """Answer, as a whole."""
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    async def send_json(self, body: Any) -> None:
        """Answer with an object."""
        await self.send(200, msgspec.json.encode(body))

    async def send_events(self, events: AsyncIterator[dict[str, Any]]) -> None:
        """Answer with a stream of server-sent events. What goes wrong before the first is an ordinary refusal."""
        async for event in events:
            if self.status is None:
                self.status = 200
                headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
                await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._event(msgspec.json.encode(event))
        await self._event(b"[DONE]")
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def refuse(self, refused: Refused) -> None:
        """Answer with a refusal: within a stream, which has begun with 200, as its last event."""
        if self.status is None:
            self.status = refused.status
            await answer(self._send, refused)
        else:
            await self._event(msgspec.json.encode(refused.body))
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _event(self, text: bytes) -> None:
        await self._send({"type": "http.response.body", "body": b"data: " + text + b"\n\n", "more_body": True})


_Handler = Callable[[Call], Awaitable[None]]


def _too_long(most: int, got: int) -> Refused:
    return Refused(413, f"expected a body of at most {most} bytes; got {got}; send less, or raise --limits.body-bytes")


class _Endpoint:
    """A handler as what starlette routes to: an application of its own, since what has begun to answer must end as it began."""

    def __init__(self, server: "_Server", path: str, handler: _Handler) -> None:
        self._server, self._path, self._handler = server, path, handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._server.handled(self._path, self._handler, Call(scope, receive, send))


class _Server:
    """The handlers."""

    def __init__(self, served: Served) -> None:
        self._served, self._config = served, served.config
        self._engine, self._chat = served.engine, served.chat
        self._desk = Desk(served.config.limits, served.engine.release)
        self._control = Control(served.engine, served.model, self._desk, served.config.weights)
        self._bounds = Bounds(served.config.limits, served.engine.context_length, served.model.config.vocab_size)
        self._metrics = Metrics(
            served.engine.statistics,
            {
                "requests_inside": ("Requests under way, now.", lambda: self._desk.num_inside),
                "requests_refused": ("Requests for which there was no room.", lambda: self._desk.num_refused),
                "sessions": ("Sessions that are remembered, now.", lambda: self._desk.num_sessions),
                "paused": ("Whether sampling is paused, now.", lambda: self._control.is_paused),
            },
        )

    async def handled(self, path: str, handler: _Handler, call: Call) -> None:
        """Answer a request, whatever comes of it, and count it."""
        began, status = time.monotonic(), 500
        try:
            await handler(call)
            status = call.status or 200
        except Refused as refused:
            status = refused.status
            await call.refuse(refused)
        except (Gone, asyncio.CancelledError, OSError):
            status = GONE
        finally:
            self._metrics.ended(path, status, time.monotonic() - began)

    # --- what is asked of the model ---

    async def completions(self, call: Call) -> None:
        """``POST /v1/completions``."""
        with self._desk.inside():
            asked = parsed(await self._body(call), Completion)
            self._check_name(asked.model)
            if asked.logprobs not in (None, 0):
                raise Refused(400, f"expected logprobs=0, the sampled token's own; got {asked.logprobs}; others are not served")
            prompts = prompts_of(asked, self._chat, self._bounds)
            most = COMPLETION_TOKENS if asked.max_tokens is None else asked.max_tokens
            requests = requests_of(asked, prompts, self._chat, self._bounds, most)
            name = asked.request_id or call.header("x-request-id") or f"cmpl-{next(_NAMES)}"
            await self._answer(call, Answering(asked, self._chat, requests, name))

    async def chat_completions(self, call: Call) -> None:
        """``POST /v1/chat/completions``."""
        with self._desk.inside():
            asked = parsed(await self._body(call), ChatCompletion)
            self._check_name(asked.model)
            conversation = opened(asked, self._chat)
            most = asked.max_completion_tokens if asked.max_tokens is None else asked.max_tokens
            requests = requests_of(asked, [conversation.ids], self._chat, self._bounds, most)
            name = asked.request_id or call.header("x-request-id") or f"chatcmpl-{next(_NAMES)}"
            await self._answer(call, Answering(asked, self._chat, requests, name, conversation))

    async def _answer(self, call: Call, answering: Answering) -> None:
        requests: list[SampleRequest] = list(answering.requests)
        sessions = [request.session for request in requests]
        with self._desk.under_way(answering.name, sessions, kept=answering.asked.session is not None):
            if answering.asked.stream:
                await unless_gone(call.receive, self._stream(call, answering))
                return
            samples = await unless_gone(call.receive, self._sample(requests))
        await call.send_json(answering.whole(samples))

    async def _sample(self, requests: list[SampleRequest]) -> Any:
        await self._control.gate()
        return await sampled(self._engine, requests)

    async def _stream(self, call: Call, answering: Answering) -> None:
        await self._control.gate()
        async with contextlib.aclosing(pieces(self._engine, answering)) as events:
            await call.send_events(events)

    async def release(self, call: Call) -> None:
        """``POST /v1/sessions/release``."""
        self._desk.release(parsed(await self._body(call), _Released).sessions)
        await call.send_json({})

    async def models(self, call: Call) -> None:
        """``GET /v1/models``."""
        about = {
            "id": self._served.name, "object": "model", "created": 0, "owned_by": "headrace",
            "max_model_len": self._engine.context_length,
        }  # fmt: skip
        await call.send_json({"object": "list", "data": [about]})

    # --- how it is ---

    async def health(self, call: Call) -> None:
        """``GET /health``."""
        if self._engine.has_ended:
            raise Refused(503, "expected a running engine; got one that has ended; see the server's log", "server_error")
        await call.send_json({"status": "ok"})

    async def metrics(self, call: Call) -> None:
        """``GET /metrics``."""
        await call.send(200, self._metrics.text(), self._metrics.content_type)

    # --- what a trainer does with it ---

    async def pause(self, call: Call) -> None:
        """``POST /pause``."""
        mode = call.query.get("mode", "abort")
        if mode not in MODES:
            raise Refused(400, f"expected a mode among {', '.join(MODES)}; got {mode!r}, in /pause; name one of them")
        await self._control.pause(mode)  # type: ignore[arg-type]
        await call.send_json({"status": "paused"})

    async def resume(self, call: Call) -> None:
        """``POST /resume``."""
        await self._control.resume()
        await call.send_json({"status": "resumed"})

    async def is_paused(self, call: Call) -> None:
        """``GET /is_paused``."""
        await call.send_json({"is_paused": self._control.is_paused})

    async def abort(self, call: Call) -> None:
        """``POST /abort_requests``."""
        names = parsed(await self._body(call), _Aborted).request_ids
        await call.send_json({"status": "aborted", "aborted": self._control.abort(names or None)})

    async def collective_rpc(self, call: Call) -> None:
        """``POST /collective_rpc``."""
        rpc = parsed(await self._body(call), _Rpc)
        if rpc.method != "reload_weights" or set(rpc.kwargs) != {"weights_path"} or rpc.args:
            raise Refused(
                400, f"expected the method reload_weights with the keyword weights_path alone; got {rpc.method!r} with "
                f"{[*rpc.args, *rpc.kwargs]}, in /collective_rpc; no other is served",
            )  # fmt: skip
        await self._control.read(rpc.kwargs["weights_path"])
        await call.send_json({"results": [None]})

    async def update_version(self, call: Call) -> None:
        """``POST /update_weight_version``."""
        version = parsed(await self._body(call), _Version).new_version
        await self._control.name_version(version)
        await call.send_json({"success": True, "new_version": version})

    async def weight_info(self, call: Call) -> None:
        """``GET /weight_info``."""
        await call.send_json({"weight_version": str(self._control.version)})

    async def _body(self, call: Call) -> bytes:
        return await call.body(self._config.limits.body_bytes, self._config.limits.body_s)

    def _check_name(self, name: str) -> None:
        if name != self._served.name:
            raise Refused(
                404, f"expected the model {self._served.name!r}; got {name!r}, in model; ask /v1/models", "not_found_error"
            )
