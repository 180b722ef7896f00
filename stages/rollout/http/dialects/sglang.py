"""SGLang over its own interface, ``/generate``.

Source: SGLang's native API and its page on reinforcement learning: ``input_ids``, ``rid``, ``return_logprob``; ``meta_info``
with ``output_token_logprobs`` as [log-probability, id, text], ``finish_reason`` and ``weight_version``; ``/abort_request``,
``/pause_generation``, ``/update_weights_from_disk``, ``/model_info``, ``/continue_generation``.
"""

from pathlib import Path
from typing import Any

import numpy as np

from stages.policy import SampleRequest
from stages.rollout.http.config import Logprobs
from stages.rollout.http.dialects.dialect import Answer, arrays, counted, seed_of
from stages.rollout.http.wire import Declined, ServerError, Wire

_REASONS = {"stop": "stop", "length": "length", "abort": "aborted"}


class SglangDialect:
    """Its answers tell one version each, so a change of weights ends what is under way, and the engine asks for the rest."""

    logprobs: Logprobs = "tempered"
    takes_weights = True
    goes_on = False

    def question(self, request: SampleRequest, name: str, model: str) -> tuple[str, dict[str, Any]]:
        """See ``Dialect.question``."""
        if request.untempered:
            raise ValueError("expected a request without untempered, which SGLang does not tell; got one; leave it out")
        sampling: dict[str, Any] = {
            "max_new_tokens": request.max_tokens,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "top_k": request.top_k or -1,
            "min_p": request.min_p,
            "stop_token_ids": list(request.stop_ids),
            "ignore_eos": True,
            "no_stop_trim": True,
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
            "sampling_seed": seed_of(request),
        }
        if request.stop_strings:
            sampling["stop"] = list(request.stop_strings)
        body = {"input_ids": request.ids.tolist(), "sampling_params": sampling, "return_logprob": True, "rid": name}
        return "/generate", body

    def answer(self, body: Any, request: SampleRequest) -> Answer:
        """See ``Dialect.answer``."""
        try:
            meta = body["meta_info"]
            told = meta["output_token_logprobs"] or []
            reason = meta["finish_reason"]["type"]
            pairs = [(entry[1], entry[0]) for entry in told]
        except (TypeError, KeyError, IndexError) as error:
            raise Declined(
                f"expected what /generate answers, with output_token_logprobs and finish_reason; got none: "
                f"{type(error).__name__} {error}; the server is of another kind: set the dialect"
            ) from error
        if reason not in _REASONS:
            raise Declined(f"expected a finish_reason among {', '.join(_REASONS)}; got {reason!r}, of /generate")
        ids, logprobs = arrays([token for token, _ in pairs], [logprob for _, logprob in pairs], "output_token_logprobs")
        version = counted(meta.get("weight_version"))
        versions = None if version is None else np.full(len(ids), version, np.int32)
        return Answer(ids, logprobs, _REASONS[reason], versions, num_cached=meta.get("cached_tokens"))  # type: ignore[arg-type]

    async def check_health(self, wire: Wire) -> None:
        """See ``Dialect.check_health``."""
        await wire.get("/health")

    async def model(self, wire: Wire) -> str:
        """See ``Dialect.model``."""
        return str((await self._about(wire)).get("model_path"))

    async def version(self, wire: Wire) -> int | None:
        """See ``Dialect.version``."""
        return counted((await self._about(wire)).get("weight_version"))

    async def abort(self, wire: Wire, name: str) -> bool:
        """See ``Dialect.abort``."""
        try:
            await wire.post("/abort_request", {"rid": name})
        except ServerError:
            return False
        return True

    async def release(self, wire: Wire, sessions: list[str]) -> None:
        """See ``Dialect.release``: prefixes are cached by their tokens."""

    async def pause(self, wire: Wire) -> None:
        """See ``Dialect.pause``."""
        await wire.post("/pause_generation", {"mode": "abort"})

    async def load(self, wire: Wire, folder: Path, version: int) -> None:
        """See ``Dialect.load``."""
        asked = {"model_path": str(folder), "weight_version": str(version), "flush_cache": True}
        told = await wire.post("/update_weights_from_disk", asked)
        if not isinstance(told, dict) or told.get("success") is not True:
            raise Declined(f"expected weights that were loaded; got {str(told)[:300]}, of {wire.url}/update_weights_from_disk")

    async def resume(self, wire: Wire) -> None:
        """See ``Dialect.resume``."""
        await wire.post("/continue_generation", {})

    async def _about(self, wire: Wire) -> dict[str, Any]:
        told = await wire.get("/model_info")
        if not isinstance(told, dict):
            raise Declined(f"expected what is served; got {str(told)[:200]}, of {wire.url}/model_info")
        return told
