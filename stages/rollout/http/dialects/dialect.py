"""What a kind of server is to the engine: questions, answers, how it takes new weights. The kinds are the files beside it."""

from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec
import numpy as np

from stages.policy import SampleRequest
from stages.rollout.http.config import Logprobs
from stages.rollout.http.wire import Declined, Wire
from stages.rollout.sampling import request_key


class Answer(msgspec.Struct, frozen=True, eq=False):
    """What a server sampled. Arrays have one length N."""

    ids: np.ndarray
    """int32 [N]"""
    logprobs: np.ndarray
    """float32 [N]"""
    stop_reason: Literal["stop", "length", "aborted"]
    versions: np.ndarray | None = None
    """int32 [N]: what the server says was in force; ``None`` where it does not say."""
    untempered: np.ndarray | None = None
    """float32 [N]; ``None`` where it was not asked for."""
    num_cached: int | None = None
    queue_s: float | None = None
    prefill_s: float | None = None
    decode_s: float | None = None


class Dialect(Protocol):
    """A kind of server. Each method speaks to one of them; those that speak raise ``ServerError``."""

    @property
    def logprobs(self) -> Logprobs:
        """What its log-probabilities are of, where its settings are as they come."""
        ...

    @property
    def takes_weights(self) -> bool:
        """Whether it can be given new weights."""
        ...

    @property
    def goes_on(self) -> bool:
        """Whether requests go on over a change of weights, each token with its version.

        If not, a pause ends them with what there is, and the engine asks for the rest afterwards.
        """
        ...

    def question(self, request: SampleRequest, name: str, model: str) -> tuple[str, dict[str, Any]]:
        """Path and body.

        Raises:
            ValueError: such a request cannot be asked.
        """
        ...

    def answer(self, body: Any, request: SampleRequest) -> Answer:
        """What was sampled.

        Raises:
            Declined: the body is none of this kind of server.
        """
        ...

    async def check_health(self, wire: Wire) -> None:
        """Returns where the server is well."""
        ...

    async def model(self, wire: Wire) -> str:
        """Name of what it serves."""
        ...

    async def version(self, wire: Wire) -> int | None:
        """Version of the weights in force; ``None`` where it does not count them."""
        ...

    async def abort(self, wire: Wire, name: str) -> bool:
        """End a request with what there is. False where that cannot be asked for: whoever waits closes the connection."""
        ...

    async def release(self, wire: Wire, sessions: list[str]) -> None:
        """Sessions will not come back."""
        ...

    async def pause(self, wire: Wire) -> None:
        """Stop sampling."""
        ...

    async def load(self, wire: Wire, folder: Path, version: int) -> None:
        """Of a paused server: put the weights of a folder in force."""
        ...

    async def resume(self, wire: Wire) -> None:
        """Go on."""
        ...


def seed_of(request: SampleRequest) -> int:
    """The key of a request as the one number that other servers take, from 0 to 2**31 - 1."""
    return int(request_key(request.key)[0]) & 0x7FFFFFFF


def arrays(ids: Any, logprobs: Any, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Ids and log-probabilities of an answer, as many of one as of the other.

    Raises:
        Declined: they are not.
    """
    try:
        ids_N, logprobs_N = np.array(ids, np.int64), np.array(logprobs, np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise Declined(f"expected token ids and log-probabilities; got {error}, in {where}") from error
    if ids_N.ndim != 1 or ids_N.shape != logprobs_N.shape or (len(ids_N) and not 0 <= ids_N.min() <= ids_N.max() < 2**31):
        shapes = f"{ids_N.dtype}{list(ids_N.shape)} and {list(logprobs_N.shape)}"
        raise Declined(f"expected a log-probability for each token id; got {shapes}, in {where}")
    return ids_N.astype(np.int32), logprobs_N


def counted(told: Any) -> int | None:
    """A version that a server tells as a text; ``None`` where it is no number."""
    text = str(told)
    return int(text) if text.isascii() and text.isdigit() else None
