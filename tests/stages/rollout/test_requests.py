"""What may be asked of an engine: all that a request can hold, and that it is refused before it can do harm."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stages.policy import SampleRequest
from stages.rollout.replies import Replies
from stages.rollout.requests import request_problem, version_problem
from stages.rollout.sampling import request_key
from stages.rollout.steps import Job
from stages.rollout.stops import Stops

FIELDS = {
    "ids": np.array([1, 2, 3], np.int32),
    "max_tokens": 4,
    "stop_ids": (0,),
    "temperature": 1.0,
    "key": (0, 0, 0, 0, 0),
    "session": "s",
}
NUMBERS = st.integers(-(2**70), 2**70) | st.floats() | st.none() | st.text(max_size=3) | st.booleans()


def problem_of(**changes) -> str | None:
    return request_problem(SampleRequest(**{**FIELDS, **changes}), 16, 29, reads_text=False)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ids": [1, 2]}, "expected ids as a NumPy array of integers; got list"),
        ({"ids": np.zeros(0, np.int32)}, r"got int32\[0\]; pass the whole context"),
        ({"ids": np.ones(16, np.int64)}, "at most 15 tokens, .* got 16"),
        ({"ids": np.array([29])}, "from 0 to 28; got 29 to 29"),
        ({"max_tokens": 0}, "max_tokens of at least 1; got 0"),
        ({"max_tokens": 2**31}, "max_tokens of at least 1; got 2147483648"),
        ({"temperature": None}, r"temperature of 0, or from 1e-06 to 3.40282e\+38; got None"),
        ({"temperature": 1e-38}, r"temperature of 0, or from 1e-06 to 3.40282e\+38; got 1e-38"),
        ({"temperature": float("nan")}, "got nan"),
        ({"top_k": 2**31}, "top_k=2147483648, top_p=1.0"),
        ({"top_k": 2.5}, "top_k=2.5"),
        ({"top_p": 0.0}, "top_p=0.0"),
        ({"min_p": "x"}, "min_p='x'"),
        ({"stop_strings": "END"}, r"tuple of texts, none of them empty; got 'END'; write \('END',\)"),
        ({"stop_strings": ("",)}, r"none of them empty; got \('',\)"),
        ({"stop_strings": ("x",)}, "cannot read text"),
        ({"stop_ids": ("x",)}, r"stop_ids of token ids; got \('x',\)"),
        ({"session": ["s"]}, "session named by a text; got list"),
        ({"key": (2**64, 0, 0, 0, 0)}, "five integers of 64 bits; got"),
        ({"key": (0, 0)}, r"five integers of 64 bits; got \(0, 0\)"),
    ],
)
def test_what_cannot_be_served_is_told_with_what_was_got(changes, words):
    """S105."""
    with pytest.raises(ValueError, match=words):
        raise ValueError(problem_of(**changes))


@example({"temperature": 3.4028235677973366e38})  # the least that float32 rounds to infinity
@given(
    st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(("max_tokens", "temperature", "top_k", "top_p", "min_p", "untempered", "session"), NUMBERS),
    )
)
def test_whatever_is_not_refused_fits_the_arrays_of_the_engine(changes):
    """A value that did not would end the engine's thread, and everybody's requests with it."""
    if problem_of(**changes) is not None:
        return
    request = SampleRequest(**{**FIELDS, **changes})
    replies = Replies(np.zeros((1, 16), np.int32))
    replies.begin(0, Job(request, request_key(request.key), Stops(request)), cached=0)
    assert replies.draw.temperature_S[0] == np.float32(request.temperature)
    assert replies.draw.top_k_S[0] == request.top_k
    assert (replies.draw.temperature_S[0] == 0) == (request.temperature == 0)


@pytest.mark.parametrize("version", [-1, -3, 2**31, 1.5, None, True])
def test_a_version_that_the_record_of_a_token_cannot_hold_is_refused(version):
    assert f"expected a version from 0 to 2147483647; got {version!r}" in version_problem(version)
    assert version_problem(2**31 - 1) is None
