"""Samples as OpenAI's choices, whole or in pieces of a stream. Pure: what a choice is, not how it is sent.

Beside OpenAI's fields stand vLLM's ``token_ids`` and ``prompt_token_ids``, and of our own, under ``headrace``, what a trainer
needs to know of each token.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphs.serving.conversation import Opened, said
from graphs.serving.texts import GrowingText
from graphs.serving.wire import ChatCompletion, Completion, Drawing
from stages.policy import Sample, SampleRequest
from stages.text.chat import Chat

_REASONS = {"stop": "stop", "length": "length", "aborted": "abort"}


@dataclass(frozen=True)
class Answering:
    """How the choices of one request are written.

    Attributes:
        asked: the request.
        chat: of the model.
        requests: what the policy is asked, in the order of the choices.
        name: of the request.
        conversation: that a chat completion goes on with; ``None`` for a completion.
        created: seconds since the epoch.
    """

    asked: Completion | ChatCompletion
    chat: Chat
    requests: Sequence[SampleRequest]
    name: str
    conversation: Opened | None = None
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, samples: Sequence[Sample]) -> dict[str, Any]:
        """The answer as one object."""
        choices = [self._choice(index, sample) for index, sample in enumerate(samples)]
        body = self._head("") | {"choices": choices, "usage": self.usage(samples)}
        if self.conversation is not None and self.asked.return_token_ids:
            body["prompt_token_ids"] = self.requests[0].ids.tolist()
        return body

    def piece(self, index: int, text: str, ids: Sequence[int], logprobs: Sequence[float], *, first: bool) -> dict[str, Any]:
        """A piece of a stream: new text and tokens of a choice that goes on."""
        choice: dict[str, Any] = {"index": index, "finish_reason": None}
        if self.conversation is None:
            choice["text"] = text
        else:
            choice["delta"] = {**({"role": "assistant"} if first else {}), "content": text}
        return self._streamed(choice, index, ids, logprobs, first=first)

    def last(self, index: int, text: str, sample: Sample, given: int, *, first: bool) -> dict[str, Any]:
        """The last piece of a choice.

        Args:
            index: of the choice.
            text: the rest of it.
            sample: all of it.
            given: tokens in pieces before.
            first: whether there was no piece before.
        """
        choice: dict[str, Any] = {"index": index, "finish_reason": _REASONS[sample.stop_reason], "stop_reason": None}
        if self.conversation is None:
            choice["text"] = text
        else:
            message = self._message(index, sample, text)
            calls = [{"index": place, **call} for place, call in enumerate(message.get("tool_calls", ()))]
            role = {"role": "assistant"} if first else {}
            choice["delta"] = {**role, "content": message["content"], **({"tool_calls": calls} if calls else {})}
            choice["finish_reason"] = "tool_calls" if calls and sample.stop_reason == "stop" else choice["finish_reason"]
        self._add_own(choice, sample)
        return self._streamed(choice, index, sample.ids[given:].tolist(), sample.logprobs[given:].tolist(), first=first)

    def counted(self, samples: Sequence[Sample]) -> dict[str, Any]:
        """The piece that ends a stream with the number of tokens."""
        return self._head(".chunk") | {"choices": [], "usage": self.usage(samples)}

    def usage(self, samples: Sequence[Sample]) -> dict[str, Any]:
        """Tokens of prompts and choices; those of a prompt count once, however many choices it has."""
        prompts = sum(len(request.ids) for request in self.requests[:: self.asked.n])
        sampled = sum(len(sample.ids) for sample in samples)
        cached = sum(sample.num_cached or 0 for sample in samples[:: self.asked.n])
        return {
            "prompt_tokens": prompts, "completion_tokens": sampled, "total_tokens": prompts + sampled,
            "prompt_tokens_details": {"cached_tokens": cached},
        }  # fmt: skip

    def text(self, index: int) -> GrowingText:
        """The text of a choice, with nothing in it yet."""
        request, asked = self.requests[index], self.asked
        return GrowingText(self.chat.decode, request.stop_ids, asked.stops, asked.include_stop_str_in_output)

    @property
    def by_token(self) -> bool:
        """Whether text may be given on as it comes: where tools may be called, only the whole turn tells what is a call."""
        return self.conversation is None or not self.conversation.tools

    def _choice(self, index: int, sample: Sample) -> dict[str, Any]:
        text = self.text(index).finish(sample.ids.tolist())
        choice: dict[str, Any] = {"index": index, "finish_reason": _REASONS[sample.stop_reason], "stop_reason": None}
        if self.conversation is None:
            choice["text"] = text
        else:
            choice["message"] = self._message(index, sample, text)
            if "tool_calls" in choice["message"] and sample.stop_reason == "stop":
                choice["finish_reason"] = "tool_calls"
        ids, logprobs = sample.ids.tolist(), sample.logprobs.tolist()
        choice["logprobs"] = self._logprobs(ids, logprobs)
        if self.asked.return_token_ids:
            choice["token_ids"] = ids
            if self.conversation is None:
                choice["prompt_token_ids"] = self.requests[index].ids.tolist()
        self._add_own(choice, sample)
        return choice

    def _message(self, index: int, sample: Sample, text: str) -> dict[str, Any]:
        assert self.conversation is not None
        return said(sample.ids, self.conversation, self.chat, text)

    def _streamed(
        self, choice: dict[str, Any], index: int, ids: Sequence[int], logprobs: Sequence[float], *, first: bool
    ) -> dict[str, Any]:
        choice["logprobs"] = self._logprobs(ids, logprobs)
        body = self._head(".chunk") | {"choices": [choice]}
        if self.asked.return_token_ids:
            choice["token_ids"] = list(ids)
            if first:
                (choice if self.conversation is None else body)["prompt_token_ids"] = self.requests[index].ids.tolist()
        return body

    def _head(self, kind: str) -> dict[str, Any]:
        # Pieces of a completion have the name of a whole one.
        what = "text_completion" if self.conversation is None else f"chat.completion{kind}"
        return {"id": self.name, "object": what, "created": self.created, "model": self.asked.model}

    def _logprobs(self, ids: Sequence[int], logprobs: Sequence[float]) -> dict[str, Any] | None:
        if not _wants_logprobs(self.asked):
            return None
        tokens = [f"token_id:{token}" if self.asked.return_tokens_as_token_ids else self._decoded(token) for token in ids]
        if self.conversation is None:
            return {"tokens": tokens, "token_logprobs": list(logprobs), "top_logprobs": None, "text_offset": _offsets(tokens)}
        content = [
            {"token": token, "logprob": logprob, "bytes": list(token.encode()), "top_logprobs": []}
            for token, logprob in zip(tokens, logprobs, strict=True)
        ]
        return {"content": content, "refusal": None}

    def _decoded(self, token: int) -> str:
        return self.chat.decode(np.array([token], np.int32))

    def _add_own(self, choice: dict[str, Any], sample: Sample) -> None:
        if not self.asked.return_token_ids:
            return
        choice["headrace"] = {
            "versions": sample.versions.tolist(),
            "untempered": None if sample.untempered is None else sample.untempered.tolist(),
            "num_cached": sample.num_cached,
            "queue_s": sample.queue_s,
            "prefill_s": sample.prefill_s,
            "decode_s": sample.decode_s,
        }


def _wants_logprobs(asked: Drawing) -> bool:
    return asked.logprobs is not None if isinstance(asked, Completion) else bool(asked.logprobs)  # type: ignore[attr-defined]


def _offsets(tokens: Sequence[str]) -> list[int]:
    return [0, *np.cumsum([len(token) for token in tokens]).tolist()][: len(tokens)]
