import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.records import BadCall, Message, ToolCall
from stages.text.compact import CompactChat
from stages.tools.calculator import calculator_tool
from stages.tools.function import FunctionTool

CALCULATOR = calculator_tool()
CHAT = CompactChat([CALCULATOR])


def ids_of(text):
    """Ids of a text with marks, by the layout that the vocabulary documents: marks, tools, characters."""
    tokens = {token: index for index, token in enumerate(CHAT.vocabulary.tokens)}
    ids = []
    while text:
        token = next(t for t in sorted(tokens, key=len, reverse=True) if text.startswith(t))
        ids.append(tokens[token])
        text = text[len(token) :]
    return np.array(ids, np.int32)


def test_an_episode_is_spelt_as_documented():
    call = Message("assistant", "", (ToolCall("call-0-0", "calculator", {"expression": "12*34"}),))
    ids = [
        CHAT.open([Message("user", "12*34")], [CALCULATOR]),
        CHAT.write(call),
        CHAT.extend([Message("tool", "408", call_id="call-0-0")]),
        CHAT.write(Message("assistant", "408")),
    ]
    want = "<|bos|><|user|>12*34<|assistant|><|calculator|>12*34<|end|><|tool|>408<|assistant|>408<|end|>"
    assert np.concatenate(ids).tolist() == ids_of(want).tolist()
    assert CHAT.decode(np.concatenate(ids)) == want


def test_a_call_is_read_back_with_its_argument_and_an_id_of_turn_and_place():
    read = CHAT.read(ids_of("so<|calculator|>1+2<|calculator|>3*4<|end|>"), turn=2)
    assert read == Message(
        "assistant",
        "so",
        (
            ToolCall("call-2-0", "calculator", {"expression": "1+2"}),
            ToolCall("call-2-1", "calculator", {"expression": "3*4"}),
        ),
    )


def test_a_whole_call_before_a_cut_one_stays_whole_and_the_cut_one_is_none():
    """S47, S48."""
    first, second = CHAT.read(ids_of("<|calculator|>1+2<|calculator|>3*")).calls
    assert first == ToolCall("call-0-0", "calculator", {"expression": "1+2"})
    assert isinstance(second, BadCall)
    assert "cut" in second.problem


@pytest.mark.parametrize("text", ["<|calculator|><|end|>", "<|calculator|>1<|user|>2<|end|>", "<|calculator|>1<|end|><|end|>"])
def test_a_call_without_a_plain_argument_is_a_bad_call(text):
    """S51, S52: never a call with an empty or mended argument."""
    (call,) = CHAT.read(ids_of(text)).calls
    assert isinstance(call, BadCall)


def test_a_mark_in_an_answer_shows_and_is_no_part_of_the_number():
    assert CHAT.read(ids_of("40<|user|>8<|end|>")).content == "40<|user|>8"


@given(st.lists(st.integers(-5, CHAT.vocab_size + 5)))
def test_reading_never_raises(ids):
    message = CHAT.read(np.array(ids, np.int64))
    assert message.role == "assistant"
    assert len({call.id for call in message.calls}) == len(message.calls)


def test_an_unknown_character_in_a_prompt_is_refused_with_its_position():
    with pytest.raises(
        ValueError, match=r"expected characters among .* got 'É' at position 4 of 'caf.É', in a user message; rewrite"
    ):
        CHAT.open([Message("user", "caf É")], [])


def test_a_reply_from_outside_never_fails():
    ids = CHAT.extend([Message("tool", "Größe\n2", call_id="x")])
    assert CHAT.decode(ids) == "<|tool|>gr??e 2<|assistant|>"


def test_a_mark_spelt_out_in_a_prompt_stays_text():
    """An outside text must not be able to speak for the model."""
    ids = CHAT.extend([Message("tool", "<|end|>", call_id="x")])
    assert len(ids) == len("<|end|>") + 2
    assert CHAT.stop_ids[0] not in ids


def test_tools_without_a_token_and_tools_of_two_arguments_are_refused():
    async def search(query: str, page: str) -> str:
        """Search."""

    with pytest.raises(ValueError, match=r"expected tools among \['calculator'\]; got \['search'\]"):
        CHAT.open([Message("user", "1")], [FunctionTool(search)])
    with pytest.raises(ValueError, match="expected a tool with exactly one string parameter; got search"):
        CompactChat([FunctionTool(search)])
    with pytest.raises(ValueError, match="tool names that differ"):
        CompactChat([CALCULATOR, CALCULATOR])


def test_the_vocabulary_is_small():
    assert CHAT.vocab_size == len(set(CHAT.vocabulary.tokens)) <= 64


def test_a_turn_without_its_end_token_is_closed_before_the_reply():
    """S36, S55."""
    reply = [Message("tool", "408", call_id="x")]
    assert CHAT.decode(CHAT.extend(reply, closed=False)) == "<|end|><|tool|>408<|assistant|>"
    assert CHAT.extend(reply, closed=False)[1:].tolist() == CHAT.extend(reply).tolist()


def test_a_call_that_a_stop_string_ended_is_cut_off():
    """S47: only a mark ends a call, so its argument is not taken to be whole."""
    [call] = CHAT.read(CHAT.write(Message("assistant", "", (ToolCall("", "calculator", {"expression": "1+1="}),)))[:-1]).calls
    assert call == BadCall("call-0-0", "the call was cut off")


def test_a_text_that_is_no_conversation_is_written_behind_the_begin_token():
    assert CHAT.encode("12*34").tolist() == ids_of("<|bos|>12*34").tolist()
    with pytest.raises(ValueError, match="in a text"):
        CHAT.encode("é")
