"""From a request on the wire to what a policy is asked, one ``SampleRequest`` a choice. No sampling, no HTTP.

Whatever serves chat completions can use it: it needs a chat format and the bounds, and knows of no engine.
"""

import itertools
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphs.serving.config import Limits
from graphs.serving.errors import Refused
from graphs.serving.wire import Completion, Drawing
from stages.policy import SampleRequest
from stages.text.chat import Chat

COMPLETION_TOKENS = 16
"""Most tokens of a completion that names no number, as OpenAI has it."""
_NAMES = itertools.count()


@dataclass(frozen=True)
class Bounds:
    """What a request is held against.

    Attributes:
        limits: of the server.
        context_length: most tokens of prompt and choice together.
        vocab_size: of the model.
    """

    limits: Limits
    context_length: int
    vocab_size: int


def prompts_of(asked: Completion, chat: Chat, bounds: Bounds) -> list[np.ndarray]:
    """The prompts of a completion as ids, int32 [T] each.

    Raises:
        Refused: a text that the vocabulary has not, no ids, or ids that no token has.
    """
    given = [asked.prompt] if isinstance(asked.prompt, str) else asked.prompt
    if not given:
        raise Refused(400, "expected a prompt; got an empty list, in prompt; give a text, or token ids")
    numbers = [part for part in given if isinstance(part, int)]
    if len(numbers) == len(given):
        return [_ids_of(numbers, chat, bounds)]
    if numbers:
        raise Refused(
            400, "expected texts, or token ids; got a mixture, in prompt; put the ids of each prompt into a list of its own"
        )
    return [_ids_of(part, chat, bounds) for part in given if not isinstance(part, int)]


def requests_of(
    asked: Drawing, prompts: Sequence[np.ndarray], chat: Chat, bounds: Bounds, max_tokens: int | None
) -> list[SampleRequest]:
    """What the policy is asked, ``n`` requests a prompt, in order.

    Args:
        asked: the request.
        prompts: int32 [T] each.
        chat: whose stop tokens end a choice.
        bounds: what it is held against.
        max_tokens: most tokens of a choice; ``None`` for what the bounds leave.

    Raises:
        Refused: it asks for more than the bounds, or for what is not served.
    """
    _check(asked, len(prompts), bounds.limits, max_tokens)
    name = asked.session or f"request-{next(_NAMES)}"
    seed = secrets.randbits(62) if asked.seed is None else asked.seed
    stop_ids = (*(() if asked.ignore_eos else chat.stop_ids), *(asked.stop_token_ids or ()))
    requests = []
    for index, (prompt, number) in enumerate((prompt, number) for prompt in prompts for number in range(asked.n)):
        room = bounds.context_length - len(prompt)
        if room < 1:
            raise Refused(
                400,
                f"expected a prompt of at most {bounds.context_length - 1} tokens, so that one more fits the context of "
                f"{bounds.context_length}; got {len(prompt)}; shorten it",
            )
        most = min(bounds.limits.tokens, room) if max_tokens is None else min(max_tokens, room)
        single = asked.session is not None or asked.key is not None
        requests.append(
            SampleRequest(
                ids=prompt,
                max_tokens=most,
                stop_ids=tuple(dict.fromkeys(stop_ids)),
                temperature=1.0 if asked.temperature is None else asked.temperature,
                key=asked.key or (seed, index // asked.n, number, 0, 0),
                session=name if single else f"{name}-{index}",
                top_k=max(asked.top_k or 0, 0),
                top_p=1.0 if asked.top_p is None else asked.top_p,
                min_p=asked.min_p or 0.0,
                stop_strings=asked.stops,
                untempered=asked.untempered,
            )
        )
    return requests


def _check(asked: Drawing, num_prompts: int, limits: Limits, max_tokens: int | None) -> None:
    choices = num_prompts * asked.n
    if asked.n < 1 or choices > limits.choices:
        raise Refused(400, f"expected 1 to {limits.choices} choices; got {num_prompts} prompts with n={asked.n}; ask for fewer")
    if choices > 1 and (asked.session is not None or asked.key is not None):
        raise Refused(400, f"expected one choice with a session or a key; got {choices}; ask for each by itself")
    if max_tokens is not None and not 1 <= max_tokens <= limits.tokens:
        raise Refused(400, f"expected max_tokens from 1 to {limits.tokens}; got {max_tokens}; ask for fewer")
    if asked.logit_bias:
        raise Refused(400, "expected no logit_bias, which is not served; leave it out")
    if asked.seed is not None and not -(2**63) <= asked.seed < 2**63:
        raise Refused(400, f"expected a seed of 64 bits; got {asked.seed}; choose a smaller one")
    if len(asked.stops) > 16 or any(len(text) > 256 for text in asked.stops):
        raise Refused(400, "expected at most 16 stop texts of at most 256 characters each; got more, in stop; give fewer")
    if asked.stop_token_ids is not None and len(asked.stop_token_ids) > 256:
        raise Refused(400, f"expected at most 256 stop_token_ids; got {len(asked.stop_token_ids)}; give fewer")


def _ids_of(prompt: str | list[int], chat: Chat, bounds: Bounds) -> np.ndarray:
    if isinstance(prompt, str):
        try:
            return chat.encode(prompt)
        except ValueError as error:
            raise Refused(400, str(error)) from error
    if not prompt:
        raise Refused(400, "expected token ids; got an empty prompt, in prompt; give at least one")
    # Before they become an array, where a number that fits no token would wrap or raise.
    if min(prompt) < 0 or max(prompt) >= bounds.vocab_size:
        raise Refused(
            400,
            f"expected token ids from 0 to {bounds.vocab_size - 1}; got {min(prompt)} to {max(prompt)}, in prompt; "
            "use the tokenizer of the served model",
        )
    return np.array(prompt, np.int32)
