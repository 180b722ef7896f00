"""Where a reply ends, over a vocabulary in which each id is a byte, and over one of odd pieces."""

import numpy as np
import pytest

from stages.policy import SampleRequest
from stages.rollout.stops import Stops

PIECES = ["a", "EN", "D", "END", "x EN", "D.", "\n\n", "\n"]


def request(*strings: str, ids: str = "", stop_ids: tuple[int, ...] = ()) -> SampleRequest:
    context = np.frombuffer(ids.encode(), np.uint8).astype(np.int32)
    return SampleRequest(context, 99, stop_ids, 1.0, (0, 0, 0, 0, 0), "session", stop_strings=strings)


def read_bytes(ids: np.ndarray) -> str:
    return bytes(ids.tolist()).decode("utf-8", errors="replace")


def read_pieces(ids: np.ndarray) -> str:
    return "".join(PIECES[i] for i in ids)


def ends_at(stops: Stops, sampled: np.ndarray) -> int | None:
    """Number of tokens of the reply, were these sampled one by one."""
    return next((num for num in range(1, len(sampled) + 1) if stops.ended_by(sampled[:num])), None)


@pytest.mark.parametrize(
    ("strings", "text", "length"),
    [
        (("END",), "say END now", 7),
        (("END", "\n"), "one\nEND", 4),
        (("größe",), "die größe ist", len("die größe".encode())),
        (("→",), "a→b", 1 + 3),
        (("END",), "EN D", None),
        (("aab",), "aaab", 4),
    ],
)
def test_reply_ends_with_the_byte_that_completes_the_string(strings, text, length):
    sampled = np.frombuffer(text.encode(), np.uint8).astype(np.int32)
    assert ends_at(Stops(request(*strings), read_bytes), sampled) == length


def test_token_that_completes_the_string_belongs_to_the_reply_with_all_of_its_text():
    """S36, S47: nothing is cut off, so ids and text are of one span."""
    sampled = np.array([0, 4, 5, 0], np.int32)
    num = ends_at(Stops(request("END"), read_pieces), sampled)
    assert read_pieces(sampled[:num]) == "ax END."


def test_string_that_begins_in_the_context_does_not_count():
    assert ends_at(Stops(request("END", ids="EN"), read_bytes), np.frombuffer(b"D now", np.uint8).astype(np.int32)) is None


def test_any_stop_token_ends_the_reply():
    """S35, S87: also one that is not the tokenizer's own end token."""
    stops = Stops(request(stop_ids=(3, 7)))
    assert ends_at(stops, np.array([1, 2, 7, 3], np.int32)) == 3
    assert ends_at(stops, np.array([1, 2, 4], np.int32)) is None


def test_tokens_without_text_inside_a_string_do_not_hide_it():
    """Nine of them; id 99 has no text."""

    def decode(ids: np.ndarray) -> str:
        return "".join("" if i == 99 else chr(i) for i in ids)

    sampled = np.array([*b"say EN", *[99] * 9, *b"D", *b"!"], np.int32)
    assert ends_at(Stops(request("END"), decode), sampled) == 16


def test_work_per_token_does_not_grow_with_the_reply():
    read = []

    def decode(ids: np.ndarray) -> str:
        read.append(len(ids))
        return read_bytes(ids)

    stops = Stops(request("END"), decode)
    sampled = np.full(500, ord("a"), np.int32)
    assert ends_at(stops, sampled) is None
    assert max(read) == 3 + 4
