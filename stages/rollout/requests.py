"""What the engine refuses to be asked, before it is posted to the thread, where a value that fits no array ends all."""

from numbers import Real

import numpy as np

from stages.policy import SampleRequest

MOST = 2**31 - 1
"""Counts and versions are int32 on the device."""
LEAST_TEMPERATURE = 1e-6
"""Below it divided logits are no float32 any more; what they would mean is what 0 does."""
MOST_TEMPERATURE = float(np.finfo(np.float32).max)
"""Above it a temperature is no float32; what it would mean is what any large one does."""


def request_problem(request: SampleRequest, context_length: int, vocab_size: int, *, reads_text: bool) -> str | None:
    """What is wrong with a request: expected, got, what to do; ``None`` where nothing is.

    Args:
        request: of whoever asks; its fields are not trusted to have their types.
        context_length: most tokens of context and continuation together.
        vocab_size: of the model.
        reads_text: whether the engine can look for stop strings.
    """
    return (
        _ids_problem(request.ids, context_length, vocab_size)
        or _draw_problem(request)
        or _stop_problem(request, reads_text)
        or _name_problem(request)
    )


def version_problem(version: object) -> str | None:
    """What is wrong with the number of a version of weights."""
    if _is_count(version):
        return None
    return f"expected a version from 0 to {MOST}; got {version!r}; count the versions of a run from 0 on"


def _ids_problem(ids: object, limit: int, vocab_size: int) -> str | None:
    if not isinstance(ids, np.ndarray):
        return f"expected ids as a NumPy array of integers; got {type(ids).__name__}; pass np.array(ids, np.int32)"
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer) or len(ids) == 0:
        return f"expected ids of one or more integers in one row; got {ids.dtype}{list(ids.shape)}; pass the whole context"
    if len(ids) >= limit:
        return (
            f"expected a context of at most {limit - 1} tokens, so that one more fits the context length {limit}; "
            f"got {len(ids)}; end the episode earlier or raise context_length"
        )
    if ids.min() < 0 or ids.max() >= vocab_size:
        return (
            f"expected ids from 0 to {vocab_size - 1}; got {ids.min()} to {ids.max()}; "
            "use the tokenizer that belongs to the model"
        )
    return None


def _draw_problem(request: SampleRequest) -> str | None:
    if not _is_count(request.max_tokens, 1):
        return f"expected max_tokens of at least 1; got {request.max_tokens!r}; end the turn instead of sampling nothing"
    temperature = request.temperature
    if not isinstance(temperature, Real) or not (temperature == 0 or LEAST_TEMPERATURE <= temperature <= MOST_TEMPERATURE):
        ends = f"{LEAST_TEMPERATURE:g} to {MOST_TEMPERATURE:g}"
        return f"expected a temperature of 0, or from {ends}; got {temperature!r}; 0 takes the most likely token"
    shares = (request.top_p, request.min_p)
    known = _is_count(request.top_k) and all(isinstance(share, Real) for share in shares)
    if not known or not 0.0 < request.top_p <= 1.0 or not 0.0 <= request.min_p <= 1.0:
        return (
            f"expected top_k from 0 to {MOST}, top_p above 0 and at most 1, min_p from 0 to 1; got "
            f"top_k={request.top_k!r}, top_p={request.top_p!r}, min_p={request.min_p!r}; 0, 1 and 0 truncate nothing"
        )
    return None


def _stop_problem(request: SampleRequest, reads_text: bool) -> str | None:
    strings = request.stop_strings
    if isinstance(strings, str) or not all(isinstance(string, str) and string for string in strings):
        return f"expected stop strings as a tuple of texts, none of them empty; got {strings!r}; write ('END',)"
    if strings and not reads_text:
        return f"expected no stop strings, since this engine cannot read text; got {strings}; make it with decode=chat.decode"
    if not all(_is_count(token) for token in request.stop_ids):
        return f"expected stop_ids of token ids; got {request.stop_ids!r}; take those of the chat"
    return None


def _name_problem(request: SampleRequest) -> str | None:
    if not isinstance(request.session, str):
        return f"expected a session named by a text; got {type(request.session).__name__}; name the episode"
    key = request.key
    if len(key) != 5 or not all(isinstance(part, int) and -(2**63) <= part < 2**63 for part in key):
        return f"expected a key of five integers of 64 bits; got {key!r}; see SampleRequest.key"
    return None


def _is_count(value: object, least: int = 0) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and least <= value <= MOST
