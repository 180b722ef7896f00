"""OpenAI's completions over token ids, with vLLM's endpoints for pauses and weights: vLLM, and ``headrace serve``.

Source: vLLM's OpenAI-compatible server (``return_token_ids``, ``stop_token_ids``, ``request_id``) and its router of
reinforcement learning (``/pause``, ``/resume``, ``/abort_requests``, ``/collective_rpc``, ``/update_weight_version``,
``/weight_info``), which a vLLM server has with ``VLLM_SERVER_DEV_MODE=1``. Weights go by disk (``reload_weights``): its
transports between GPUs take a process with CUDA on both ends.
"""

from pathlib import Path
from typing import Any

import numpy as np

from stages.policy import SampleRequest
from stages.rollout.http.config import Logprobs
from stages.rollout.http.dialects.dialect import Answer, arrays, counted, seed_of
from stages.rollout.http.wire import Declined, ServerError, Wire

_REASONS = {"stop": "stop", "length": "length", "abort": "aborted"}


class HeadraceDialect:
    """``headrace serve``: requests have the engine's own keys, and each token tells its version."""

    logprobs: Logprobs = "processed"
    takes_weights = True
    goes_on = True

    def question(self, request: SampleRequest, name: str, model: str) -> tuple[str, dict[str, Any]]:
        """See ``Dialect.question``."""
        body = _question(request, name, model)
        body |= {"key": list(request.key), "session": request.session, "untempered": request.untempered}
        return "/v1/completions", body

    def answer(self, body: Any, request: SampleRequest) -> Answer:
        """See ``Dialect.answer``."""
        choice, ids, logprobs = _choice(body)
        own = choice.get("headrace")
        if not isinstance(own, dict):
            raise Declined("expected what headrace serve tells of each token; got a completion without it; set the dialect")
        versions, _ = arrays(own["versions"], logprobs, "the versions of a completion")
        untempered = None if own["untempered"] is None else arrays(ids, own["untempered"], "the untempered of a completion")[1]
        return Answer(
            ids, logprobs, _reason(choice), versions, untempered, own["num_cached"], own["queue_s"], own["prefill_s"],
            own["decode_s"],
        )  # fmt: skip

    async def check_health(self, wire: Wire) -> None:
        """See ``Dialect.check_health``."""
        await wire.get("/health")

    async def model(self, wire: Wire) -> str:
        """See ``Dialect.model``."""
        return await _model(wire)

    async def version(self, wire: Wire) -> int | None:
        """See ``Dialect.version``. A server without a token has no endpoints of weights, and one version."""
        try:
            return counted((await wire.get("/weight_info"))["weight_version"])
        except Declined:
            return None

    async def abort(self, wire: Wire, name: str) -> bool:
        """See ``Dialect.abort``. A server without a token is not asked to: it ends what nobody waits for."""
        return await _abort(wire, name)

    async def release(self, wire: Wire, sessions: list[str]) -> None:
        """See ``Dialect.release``."""
        await wire.post("/v1/sessions/release", {"sessions": sessions})

    async def pause(self, wire: Wire) -> None:
        """See ``Dialect.pause``."""
        await wire.post("/pause?mode=keep", None)

    async def load(self, wire: Wire, folder: Path, version: int) -> None:
        """See ``Dialect.load``."""
        await _reload(wire, folder)
        await wire.post("/update_weight_version", {"new_version": str(version)})

    async def resume(self, wire: Wire) -> None:
        """See ``Dialect.resume``."""
        await wire.post("/resume", None)


class VllmDialect:
    """vLLM. Its answers tell no version, so a change of weights ends what is under way, and the engine asks for the rest."""

    logprobs: Logprobs = "raw"
    takes_weights = True
    goes_on = False

    def question(self, request: SampleRequest, name: str, model: str) -> tuple[str, dict[str, Any]]:
        """See ``Dialect.question``."""
        body = _question(request, name, model)
        # Without these its text is cut or cleaned before it is looked at for stop texts.
        body |= {"seed": seed_of(request), "skip_special_tokens": False, "spaces_between_special_tokens": False}
        return "/v1/completions", body

    def answer(self, body: Any, request: SampleRequest) -> Answer:
        """See ``Dialect.answer``."""
        choice, ids, logprobs = _choice(body)
        details = (body.get("usage") or {}).get("prompt_tokens_details") or {}
        untempered = logprobs if request.untempered else None
        return Answer(ids, logprobs, _reason(choice), untempered=untempered, num_cached=details.get("cached_tokens"))

    async def check_health(self, wire: Wire) -> None:
        """See ``Dialect.check_health``."""
        await wire.get("/health")

    async def model(self, wire: Wire) -> str:
        """See ``Dialect.model``."""
        return await _model(wire)

    async def version(self, wire: Wire) -> int | None:
        """See ``Dialect.version``. A server outside its development mode has no such endpoint."""
        try:
            return counted((await wire.get("/weight_info"))["weight_version"])
        except Declined:
            return None

    async def abort(self, wire: Wire, name: str) -> bool:
        """See ``Dialect.abort``."""
        return await _abort(wire, name)

    async def release(self, wire: Wire, sessions: list[str]) -> None:
        """See ``Dialect.release``: prefixes are cached by their tokens."""

    async def pause(self, wire: Wire) -> None:
        """See ``Dialect.pause``."""
        await wire.post("/pause?mode=abort", None)

    async def load(self, wire: Wire, folder: Path, version: int) -> None:
        """See ``Dialect.load``."""
        await _reload(wire, folder)
        # What was cached was computed by the weights of before.
        await wire.post("/reset_prefix_cache", None)
        await wire.post("/update_weight_version", {"new_version": str(version)})

    async def resume(self, wire: Wire) -> None:
        """See ``Dialect.resume``."""
        await wire.post("/resume", None)


def _question(request: SampleRequest, name: str, model: str) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": model,
        "prompt": request.ids.tolist(),
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": request.top_k,
        "min_p": request.min_p,
        "stop_token_ids": list(request.stop_ids),
        "ignore_eos": True,
        "logprobs": 0,
        "return_token_ids": True,
        "request_id": name,
    }
    return body | ({"stop": list(request.stop_strings), "include_stop_str_in_output": True} if request.stop_strings else {})


def _choice(body: Any) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    try:
        choice = body["choices"][0]
        ids, logprobs = choice["token_ids"], (choice["logprobs"] or {"token_logprobs": []})["token_logprobs"]
    except (TypeError, KeyError, IndexError) as error:
        raise Declined(
            f"expected a completion with token_ids and logprobs; got none: {type(error).__name__} {error}; "
            "the server is too old, or of another kind: set the dialect"
        ) from error
    return choice, *arrays(ids, logprobs, "a completion")


def _reason(choice: dict[str, Any]) -> Any:
    reason = choice.get("finish_reason")
    if reason not in _REASONS:
        raise Declined(f"expected a finish_reason among {', '.join(_REASONS)}; got {reason!r}, in a completion")
    return _REASONS[reason]


async def _model(wire: Wire) -> str:
    listed = await wire.get("/v1/models")
    try:
        return str(listed["data"][0]["id"])
    except (TypeError, KeyError, IndexError) as error:
        raise Declined(f"expected a list of models; got {str(listed)[:200]}, of {wire.url}/v1/models") from error


async def _abort(wire: Wire, name: str) -> bool:
    try:
        await wire.post("/abort_requests", {"request_ids": [name]})
    except ServerError:
        return False
    return True


async def _reload(wire: Wire, folder: Path) -> None:
    told = await wire.post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}})
    results = told.get("results") if isinstance(told, dict) else None
    if not isinstance(results, list) or not results or any(result is not None for result in results):
        raise Declined(f"expected each worker to reload and say nothing; got {str(told)[:300]}, of {wire.url}/collective_rpc")
