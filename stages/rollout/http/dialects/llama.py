"""llama.cpp's server over its own interface, ``/completion``. It is given no new weights: it samples for evaluation.

Source: the README of llama.cpp's server: ``prompt`` as ids, ``n_probs``, ``samplers``, ``return_tokens``;
``completion_probabilities`` with ``id`` and ``logprob`` of each token, of the model's own distribution, and ``stop_type``. A
turn ends by the end token of its file alone, so a request must have that among its stop tokens.
"""

from pathlib import Path
from typing import Any

from stages.policy import SampleRequest
from stages.rollout.http.config import Logprobs
from stages.rollout.http.dialects.dialect import Answer, arrays, seed_of
from stages.rollout.http.wire import Declined, Wire


class LlamaDialect:
    """Its draws are by rules of its own; greedy, it says what any engine says."""

    logprobs: Logprobs = "raw"
    takes_weights = False
    goes_on = True

    def question(self, request: SampleRequest, name: str, model: str) -> tuple[str, dict[str, Any]]:
        """See ``Dialect.question``."""
        if request.stop_strings:
            raise ValueError(
                f"expected a request without stop strings, behind which llama.cpp cuts tokens off; got {request.stop_strings}; "
                "leave them out"
            )
        greedy = request.temperature == 0
        body = {
            "prompt": request.ids.tolist(), "n_predict": request.max_tokens, "n_probs": 1, "return_tokens": True,
            "temperature": 1.0 if greedy else request.temperature, "top_k": 1 if greedy else request.top_k,
            "top_p": request.top_p, "min_p": request.min_p, "seed": seed_of(request),
            "samplers": ["top_k"] if greedy else ["temperature", "top_k", "top_p", "min_p"],
        }  # fmt: skip
        return "/completion", body

    def answer(self, body: Any, request: SampleRequest) -> Answer:
        """See ``Dialect.answer``."""
        try:
            told = body["completion_probabilities"] if body["tokens_predicted"] else []
            reason, pairs = body["stop_type"], [(entry["id"], entry["logprob"]) for entry in told]
        except (TypeError, KeyError) as error:
            raise Declined(
                f"expected what /completion answers, with completion_probabilities and stop_type; got none: "
                f"{type(error).__name__} {error}; the server is too old, or of another kind: set the dialect"
            ) from error
        ids, logprobs = arrays([token for token, _ in pairs], [logprob for _, logprob in pairs], "completion_probabilities")
        ended = "stop" if reason in ("eos", "word") else "length"
        return Answer(ids, logprobs, ended, untempered=logprobs if request.untempered else None)

    async def check_health(self, wire: Wire) -> None:
        """See ``Dialect.check_health``."""
        await wire.get("/health")

    async def model(self, wire: Wire) -> str:
        """See ``Dialect.model``."""
        return str((await wire.get("/props")).get("model_path"))

    async def version(self, wire: Wire) -> None:
        """See ``Dialect.version``: it has one."""

    async def abort(self, wire: Wire, name: str) -> bool:
        """See ``Dialect.abort``: it ends what nobody waits for."""
        return False

    async def release(self, wire: Wire, sessions: list[str]) -> None:
        """See ``Dialect.release``: prefixes are cached by their tokens."""

    async def pause(self, wire: Wire) -> None:
        """See ``Dialect.pause``."""
        raise Declined("expected a server that takes weights; got llama.cpp's, which does not; train with another")

    async def load(self, wire: Wire, folder: Path, version: int) -> None:
        """See ``Dialect.load``."""
        await self.pause(wire)

    async def resume(self, wire: Wire) -> None:
        """See ``Dialect.resume``."""
