"""Settings of ``headrace serve``: where it listens, what it refuses, and the shapes of its engine."""

import ipaddress
import os
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from stages.rollout.config import EngineConfig

TOKEN_VARIABLE = "HEADRACE_TOKEN"
"""Holds the bearer token. Not a setting: what is on a command line can be read by everybody on the machine."""
LEAST_TOKEN = 16
"""Characters of the shortest token that is taken."""


class Limits(BaseModel):
    """What one client may ask for. What is beyond is refused before anything is computed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    body_bytes: int = Field(default=1 << 20, ge=1024)
    """Bytes of a request's body."""
    body_s: float = Field(default=30.0, gt=0)
    """Seconds in which a body must have come."""
    tokens: int = Field(default=4096, ge=1)
    """Tokens sampled for one choice; the context length bounds prompt and choice together."""
    choices: int = Field(default=64, ge=1)
    """Choices of one request, over all of its prompts."""
    requests: int = Field(default=1024, ge=1)
    """Requests under way at once. One more is answered with 429 and ``Retry-After``."""
    sessions: int = Field(default=4096, ge=1)
    """Sessions that are remembered; the one idle longest is forgotten for a new one."""


class ServeConfig(BaseModel):
    """A server."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = "127.0.0.1"
    """Address to listen at. One that other machines reach takes a token."""
    port: int = Field(default=8000, ge=0, le=65535)
    """Port to listen at; 0 takes a free one."""
    name: str | None = None
    """What clients call the model; ``None`` takes the last part of what is served."""
    weights: Path | None = None
    """Folder below which new weights may be loaded from, by ``/collective_rpc``; ``None`` loads none. Takes a token."""
    revision: str | None = None
    """Commit, branch or tag of a model on the Hub; ``None`` takes its main branch."""
    limits: Limits = Limits()
    """What is refused."""
    engine: EngineConfig | None = None
    """Shapes of the engine; ``None`` takes 32 slots and the context that the model is meant for, up to 1024 tokens."""

    @model_validator(mode="after")
    def _engine_can_serve(self) -> Self:
        if self.engine is not None and (self.engine.eviction != "oldest" or self.engine.swap != "token"):
            raise ValueError(
                f"expected engine.eviction='oldest' and engine.swap='token', since a client may never come back; got "
                f"{self.engine.eviction!r} and {self.engine.swap!r}; leave them out"
            )
        return self

    @property
    def is_local(self) -> bool:
        """Whether this machine alone reaches the server."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def read_token(config: ServeConfig) -> str | None:
    """The bearer token of the environment; ``None`` where there is none and none is needed.

    Raises:
        ValueError: there is none, or a short one, and the settings need one.
    """
    token = os.environ.get(TOKEN_VARIABLE) or None
    if token is not None and (len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable() or " " in token):
        raise ValueError(
            f"expected a token of at least {LEAST_TOKEN} printable ASCII characters without spaces; got one of {len(token)}; "
            f"in {TOKEN_VARIABLE}; make one with: python -c 'import secrets; print(secrets.token_urlsafe())'"
        )
    if token is None and (not config.is_local or config.weights is not None):
        what = f"--host {config.host}, which other machines reach" if not config.is_local else "--weights"
        raise ValueError(
            f"expected a token with {what}; got none; set {TOKEN_VARIABLE}, and give clients the same as their API key"
        )
    return token
