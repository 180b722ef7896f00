"""Who may speak to a server at all, decided before a route is looked for. ASGI, around the whole application.

Three questions in order: was it asked by a name of its own (a page of somebody else's, which a browser was led to, is not),
with the token, and for what only a token may ask. What a request says is not read here.
"""

import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from graphs.serving.config import is_loopback
from graphs.serving.errors import Refused

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = frozenset({"/health"})
"""Paths that anybody may read: they say nothing but that the server is there."""


class Guard:
    """Stands before an application.

    Args:
        app: what is behind it.
        token: that clients must have; ``None`` for a server of this machine alone, which has no paths that need one.
        guarded: paths that are refused where there is no token.
    """

    def __init__(self, app: App, token: str | None, guarded: frozenset[str]) -> None:
        self._app, self._token, self._guarded = app, token, guarded

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._check(scope["path"], {name.lower(): value for name, value in scope["headers"]})
        except Refused as refused:
            await answer(send, refused)
        else:
            await self._app(scope, receive, send)

    def _check(self, path: str, headers: Mapping[bytes, bytes]) -> None:
        if self._token is None:
            host = headers.get(b"host", b"").decode("latin-1").rpartition("@")[2]
            name = host[: host.rindex("]") + 1] if "]" in host else host.partition(":")[0]
            if not is_loopback(name):
                raise Refused(
                    403, f"expected a server that is asked by a name of this machine; got {name!r}, in Host; "
                    "use 127.0.0.1 or localhost", "permission_error",
                )  # fmt: skip
            if path in self._guarded:
                raise Refused(
                    403, f"expected a server with a token for {path}; got one without; start it with HEADRACE_TOKEN set",
                    "permission_error",
                )  # fmt: skip
        elif path not in OPEN and not self._has_token(headers):
            raise Refused(
                401, "expected the server's token; got none, or another, in Authorization; send 'Bearer TOKEN'",
                "authentication_error", {"WWW-Authenticate": "Bearer"},
            )  # fmt: skip

    def _has_token(self, headers: Mapping[bytes, bytes]) -> bool:
        assert self._token is not None
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        # In a time that tells nothing of how much of it is right.
        return scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), self._token.encode())


async def answer(send: Send, refused: Refused) -> None:
    """Send a refusal."""
    body = json.dumps(refused.body).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), **refused.headers}
    listed = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": refused.status, "headers": listed})
    await send({"type": "http.response.body", "body": body})
