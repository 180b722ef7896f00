"""Settings of engines that are services."""

import os
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

Logprobs = Literal["raw", "tempered", "processed", "any"]
"""What a server's log-probabilities are of; see ``HttpConfig.logprobs``."""


class HttpConfig(BaseModel):
    """Servers that sample, and how they are spoken to."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    urls: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)
    """Addresses, such as ``http://127.0.0.1:8000``, without a path. All of them serve the same model."""
    dialect: Literal["headrace", "vllm", "sglang", "llama"] = "headrace"
    """What the servers are: ``headrace serve``, vLLM, SGLang, or llama.cpp's server."""
    model: str | None = None
    """Name of the model on the servers; ``None`` takes the one that they list first."""
    weights: Path | None = None
    """Folder that this process writes and the servers read, where weights are handed over; ``None`` hands none over: the
    servers have those of the model already, and new ones are refused."""
    token_variable: str = "HEADRACE_TOKEN"
    """Variable of the environment that holds the servers' token; without it none is sent."""
    slots: int = Field(default=32, ge=1)
    """Requests under way at once, over all servers."""
    context_length: int = Field(default=256, ge=2)
    """Most tokens of context and continuation together; at most what the servers have."""
    logprobs: Logprobs | None = None
    """What the servers' log-probabilities are of: ``raw``, the model's own distribution; ``tempered``, after the temperature;
    ``processed``, what was sampled from, truncation included; ``any`` takes them for what they are not, for evaluation.
    ``None`` takes what the dialect's servers do unless told otherwise. A request whose log-probabilities would be others is
    refused."""
    connect_s: float = Field(default=5.0, gt=0)
    """Most seconds until a connection is there."""
    answer_s: float | None = Field(default=600.0, gt=0)
    """Most seconds of silence until an answer comes; ``None`` for no limit. Time limits of an episode come before."""
    attempts: int = Field(default=8, ge=1)
    """How often one request is sent, under one name, before its episode fails."""
    backoff_s: float = Field(default=0.1, gt=0)
    """Seconds before the second attempt; doubled for each further one, and drawn between half of that and all of it."""
    max_backoff_s: float = Field(default=10.0, gt=0)
    """Most seconds between two attempts. What a server asks for by ``Retry-After`` counts, up to this."""
    health_s: float = Field(default=2.0, gt=0)
    """Seconds between two looks at each server."""
    load_s: float = Field(default=300.0, gt=0)
    """Most seconds for a server to take new weights."""
    down_s: float = Field(default=120.0, gt=0)
    """Seconds without any server that may work, after which the run ends."""

    @model_validator(mode="after")
    def _addresses(self) -> Self:
        for url in self.urls:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
                raise ValueError(
                    f"expected addresses such as http://127.0.0.1:8000; got {url!r}, in servers.urls; leave paths out"
                )
            if parts.username is not None or parts.password is not None:
                raise ValueError(
                    f"expected no password in an address; got one, of {parts.hostname}, in servers.urls; use a token"
                )
        if len(set(self.urls)) < len(self.urls):
            raise ValueError(f"expected each server once; got {', '.join(self.urls)}, in servers.urls; leave out the second")
        return self

    @property
    def token(self) -> str | None:
        """The servers' token, read now."""
        return os.environ.get(self.token_variable) or None
