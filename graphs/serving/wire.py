"""Requests as they come over the wire: OpenAI's fields that are served, vLLM's for token ids, and a few of our own.

A field that is not here is refused by its name, so that nobody believes to have set what nothing reads. Those that say nothing
of the answer (``user``, ``metadata`` and the like) are taken and ignored.
"""

from typing import Any, Literal, TypeVar

import msgspec

from graphs.serving.errors import Refused

Asked = TypeVar("Asked", bound=msgspec.Struct)


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of a stream."""

    include_usage: bool = False
    """End with a chunk that counts tokens."""


class Drawing(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How to sample: the part that completions and chat completions share."""

    model: str
    """Name of the model."""
    max_tokens: int | None = None
    """Most tokens of a choice."""
    temperature: float | None = None
    """1 where it is ``None``."""
    top_p: float | None = None
    top_k: int | None = None
    """As vLLM has it: -1 and 0 for all."""
    min_p: float | None = None
    n: int = 1
    """Choices of each prompt."""
    seed: int | None = None
    """The same seed over the same weights draws the same; ``None`` draws anew each time."""
    stop: str | list[str] | None = None
    """Texts that end a choice. They are not in its text, but in its tokens."""
    stop_token_ids: list[int] | None = None
    """Ends a choice beside the model's own end, as vLLM has it."""
    ignore_eos: bool = False
    """Only ``stop_token_ids`` and ``stop`` end a choice, as vLLM has it."""
    include_stop_str_in_output: bool = False
    """Keep the stop text in the text, as vLLM has it."""
    stream: bool = False
    stream_options: StreamOptions | None = None
    return_token_ids: bool = False
    """Give the ids of prompt and choices, as vLLM does."""
    return_tokens_as_token_ids: bool = False
    """Name tokens by their ids in log-probabilities, as vLLM does."""
    request_id: str | None = None
    """Name of the request, to abort it by; ``None`` takes the header X-Request-Id, or one that is made."""
    session: str | None = None
    """Of our own: requests of one name keep their cache from turn to turn, until ``/v1/sessions/release``."""
    key: tuple[int, int, int, int, int] | None = None
    """Of our own: see ``SampleRequest.key``; in place of a seed."""
    untempered: bool = False
    """Of our own: give log-probabilities at temperature 1 over the whole vocabulary too."""
    user: str | None = None
    metadata: Any = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    presence_penalty: Literal[0] | None = None
    """Not served: 0 only."""
    frequency_penalty: Literal[0] | None = None
    """Not served: 0 only."""
    logit_bias: dict[str, float] | None = None
    """Not served: empty only."""

    @property
    def stops(self) -> tuple[str, ...]:
        """Texts that end a choice."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


class Completion(Drawing, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``/v1/completions``."""

    prompt: str | list[str | int | list[int]]
    """A text, token ids, or a list of either."""
    logprobs: int | None = None
    """0 for the log-probability of each token that was sampled; more are not served."""
    echo: Literal[False] = False
    best_of: Literal[1] | None = None
    suffix: None = None


class FunctionCall(msgspec.Struct, frozen=True):
    """What an assistant called before."""

    name: str
    arguments: str
    """JSON."""


class ToolCallPart(msgspec.Struct, frozen=True):
    """A call in a message."""

    id: str
    function: FunctionCall
    type: Literal["function"] = "function"


class TextPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A piece of a content that is written as a list."""

    text: str
    type: Literal["text"] = "text"


class ChatMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    tool_calls: list[ToolCallPart] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    refusal: None = None
    reasoning_content: str | None = None


class FunctionSpec(msgspec.Struct, frozen=True):
    """A function that may be called."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})
    strict: bool | None = None


class ToolPart(msgspec.Struct, frozen=True):
    """A tool that may be called."""

    function: FunctionSpec
    type: Literal["function"] = "function"


class TextFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The one format of answers that is served."""

    type: Literal["text"] = "text"


class ChatCompletion(Drawing, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``/v1/chat/completions``."""

    messages: list[ChatMessage]
    tools: list[ToolPart] | None = None
    tool_choice: Literal["auto", "none"] | None = None
    """That a tool must be called is not served: nothing here bends what the model says."""
    parallel_tool_calls: bool | None = None
    logprobs: bool = False
    """Give the log-probability of each token that was sampled."""
    top_logprobs: Literal[0] | None = None
    """Others than the sampled token's are not served."""
    max_completion_tokens: int | None = None
    """What OpenAI calls ``max_tokens`` today."""
    response_format: TextFormat | None = None
    reasoning_effort: str | None = None


def parsed(body: bytes, kind: type[Asked]) -> Asked:
    """A request's body.

    Raises:
        Refused: it is no JSON, or not what was expected; the field is named.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise Refused(
            400, f"{str(error)[:1].lower()}{str(error)[1:]}, in the body of the request; mend or leave it out"
        ) from None
