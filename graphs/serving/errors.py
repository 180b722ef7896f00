"""What a server refuses, as clients of OpenAI's interface read it."""

from collections.abc import Mapping
from typing import Any


class Refused(Exception):
    """A request that is not served.

    Args:
        status: of HTTP.
        message: expected, got, where, what to do.
        kind: in OpenAI's words.
        headers: of the answer.
    """

    def __init__(
        self, status: int, message: str, kind: str = "invalid_request_error", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.kind, self.headers = status, message, kind, dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        """As JSON."""
        return {"error": {"message": self.message, "type": self.kind, "param": None, "code": self.status}}


def overloaded(limit: int) -> Refused:
    """There is no room for one more request."""
    message = f"expected at most {limit} requests under way; got one more, in the server; ask again after the seconds it says"
    return Refused(429, message, "rate_limit_error", {"Retry-After": "1"})
