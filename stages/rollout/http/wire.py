"""One server's connections: JSON out, JSON in, and what went wrong as one of three errors. It repeats nothing."""

from typing import Any, Literal

import httpx2

from stages.rollout.http.config import HttpConfig


class ServerError(Exception):
    """A server gave no answer to use. The message says what was expected and got, and where."""


class Unreachable(ServerError):
    """No connection, or one that broke, or silence."""


class Busy(ServerError):
    """A server that may answer later.

    Args:
        message: what it said.
        after_s: seconds it asks to wait; ``None`` where it does not say.
    """

    def __init__(self, message: str, after_s: float | None = None) -> None:
        super().__init__(message)
        self.after_s = after_s


class Declined(ServerError):
    """A server that will say the same again: the request is wrong, or the server is another one than was thought."""


LATER = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Statuses after which the same request may be served."""


class Wire:
    """Connections to one server, kept and used again.

    Args:
        url: of the server.
        config: see ``HttpConfig``.
    """

    def __init__(self, url: str, config: HttpConfig) -> None:
        self.url = url
        headers = {} if config.token is None else {"Authorization": f"Bearer {config.token}"}
        # Nothing between us and the server is taken from the environment: it would read the token.
        self._client = httpx2.AsyncClient(
            base_url=url, headers=headers, trust_env=False, follow_redirects=False,
            timeout=httpx2.Timeout(config.answer_s, connect=config.connect_s, pool=None),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=config.slots + 8),
        )  # fmt: skip

    async def close(self) -> None:
        """Close every connection."""
        await self._client.aclose()

    async def get(self, path: str, timeout_s: float | None = None) -> Any:
        """What is at a path, as JSON; ``None`` for an empty answer."""
        return await self._ask("GET", path, None, None, timeout_s)

    async def post(self, path: str, body: Any, name: str | None = None, timeout_s: float | None = None) -> Any:
        """Send JSON and get JSON; ``None`` for an empty answer. Cancelling closes the connection.

        Args:
            path: with its query.
            body: as JSON; ``None`` for none.
            name: of the request, sent as X-Request-Id.
            timeout_s: most seconds of silence; ``None`` for the settings'.

        Raises:
            Unreachable, Busy, Declined: see there.
        """
        return await self._ask("POST", path, body, name, timeout_s)

    async def _ask(
        self, method: Literal["GET", "POST"], path: str, body: Any, name: str | None, timeout_s: float | None
    ) -> Any:
        headers = {} if name is None else {"X-Request-Id": name}
        limited = {} if timeout_s is None else {"timeout": timeout_s}
        try:
            answer = await self._client.request(method, path, json=body, headers=headers, **limited)
        except httpx2.HTTPError as error:
            raise Unreachable(f"expected an answer of {self.url}{path}; got {type(error).__name__}: {error}") from error
        if answer.status_code in LATER:
            raise Busy(self._told(path, answer), _seconds(answer.headers.get("retry-after")))
        if answer.status_code != 200:
            raise Declined(self._told(path, answer))
        if not answer.content:
            return None
        try:
            return answer.json()
        except ValueError as error:
            kind = answer.headers.get("content-type", "")
            if not kind.startswith("application/json"):
                return None
            raise Declined(f"expected JSON; got {answer.text[:200]!r}, of {self.url}{path}") from error

    def _told(self, path: str, answer: httpx2.Response) -> str:
        return f"expected status 200; got {answer.status_code}: {answer.text[:500]}, of {self.url}{path}"


def _seconds(told: str | None) -> float | None:
    try:
        return None if told is None else max(float(told), 0.0)
    except ValueError:
        return None
