"""What each token reads as, and who said it."""

import numpy as np
import pytest

from graphs.runs.token_text import token_kinds, token_texts
from stages.records import Episode, Message, Row, Status, Task, Turn
from stages.text.compact import CompactChat

SPELLED = {0: b"a", 1: b"\xc3", 2: b"\xa9", 3: b" b", 4: b"\xf0\x9f", 5: b"\x98\x80", 6: b"\xff"}


def decode(ids: np.ndarray) -> str:
    return b"".join(SPELLED[int(one)] for one in ids).decode(errors="replace")


@pytest.mark.parametrize(
    ("ids", "texts"),
    [
        ([0, 1, 2, 3], ["a", "", "é", " b"]),
        ([4, 5, 0], ["", "😀", "a"]),
        ([0, 1], ["a", "\ufffd"]),
        ([], []),
    ],
    ids=["a character of two tokens", "one of four bytes", "a character that is cut off", "nothing"],
)
def test_tokens_of_one_character_read_as_it_in_the_last_of_them(ids: list[int], texts: list[str]) -> None:
    assert token_texts(decode, np.array(ids, np.int32)) == texts


def test_the_texts_of_a_long_episode_are_together_what_it_reads_as() -> None:
    ids = np.random.default_rng(0).choice([0, 1, 2, 3, 4, 5], 400).astype(np.int32)
    whole = np.concatenate([[one] if one in (0, 3) else [1, 2] if one in (1, 2) else [4, 5] for one in ids])
    assert "".join(token_texts(decode, whole)) == decode(whole)


def test_bytes_that_make_no_character_hide_nothing_that_comes_after() -> None:
    texts = token_texts(decode, np.array([6] * 20 + [0, 3], np.int32))
    assert "".join(texts).endswith("a b")


class Calculator:
    name, description = "calculator", ""
    parameters = {"properties": {"expression": {"type": "string"}}, "required": ["expression"], "type": "object"}  # noqa: RUF012


def test_marks_are_the_templates_and_what_users_and_tools_said_is_told_apart_from_them() -> None:
    chat = CompactChat([Calculator()])
    messages = (Message("user", "2*3"), Message("assistant", ""), Message("tool", "6"), Message("assistant", "6"))
    opening, call = chat.open(messages[:1], []), [chat.vocabulary.mark("<|calculator|>"), *chat.vocabulary.encode("2*3", "")]
    first = np.array([*call, *chat.stop_ids])
    reply, last = chat.extend(messages[2:3]), chat.write(messages[3])
    parts, sampled = [opening, first, reply, last], [False, True, False, True]
    ends = np.cumsum([len(part) for part in parts])
    mask = np.concatenate([np.full(len(part), said) for part, said in zip(parts, sampled, strict=True)])
    ids = np.concatenate(parts).astype(np.int32)
    turns = (Turn(int(ends[0]), int(ends[1]), "stop", 0.1, None), Turn(int(ends[2]), int(ends[3]), "stop", 0.1, None))
    nothing = np.full(len(ids), np.nan, np.float32)
    one = Episode(Task("t", "2*3"), 0, 0, 0, ids, mask, nothing, np.zeros(len(ids), np.int32), turns, messages, Status.FINISHED)
    texts = token_texts(chat.decode, ids)
    kinds = token_kinds(one, texts)
    told = {kind: "".join(text for text, of in zip(texts, kinds, strict=True) if of == kind) for kind in "sto"}
    assert told == {
        "o": "2*36",
        "t": "<|bos|><|user|><|assistant|><|tool|><|assistant|>",
        "s": "<|calculator|>2*3<|end|>6<|end|>",
    }
    rows = (Row(0, int(ends[1])), Row(int(ends[1]), len(ids), forked=True))
    assert token_kinds(Episode(**{name: getattr(one, name) for name in one.__struct_fields__} | {"rows": rows}), texts) == kinds


def test_a_message_that_the_template_wrote_otherwise_is_left_to_it() -> None:
    ids = np.array([0, 3, 0], np.int32)
    mask = np.array([False, False, True])
    one = Episode(
        Task("t", "?"), 0, 0, 0, ids, mask, np.zeros(3, np.float32), np.zeros(3, np.int32), (Turn(2, 3, "stop", 0.1, None),),
        (Message("user", "not there"), Message("assistant", "a")), Status.FINISHED,
    )  # fmt: skip
    assert token_kinds(one, token_texts(decode, ids)) == "tts"
