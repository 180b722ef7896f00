import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from stages.records import BadCall, Message, ToolCall
from stages.text.template import TemplateChat
from stages.text.transcript import Transcript
from stages.tools.calculator import calculator_tool

CALCULATOR = calculator_tool()
CHATML = (
    "{% if tools %}{{ '<|im_start|>system\nTools: ' + (tools | tojson) + '<|im_end|>\n' }}{% endif %}"
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def byte_tokenizer(template, *, merges=(), begin=None):
    """Every byte a token, and the three marks; no downloads."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*alphabet, *("".join(pair) for pair in merges)])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    marks = ["<|im_start|>", "<|im_end|>", "<|bos|>", "<|other|>"]
    tokenizer.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in marks])
    if begin:
        from tokenizers.processors import TemplateProcessing

        place = [(begin, tokenizer.token_to_id(begin))]
        tokenizer.post_processor = TemplateProcessing(single=f"{begin} $A", special_tokens=place)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=template, bos_token=begin, eos_token="<|im_end|>")


CHAT = TemplateChat(byte_tokenizer(CHATML))
ASK = [Message("user", "What is 2+2?")]
ANSWERED = [
    {"role": "user", "content": "What is 2+2?"},
    {"role": "assistant", "content": "2+2"},
    {"role": "tool", "content": "4"},
]


def test_turns_joined_token_by_token_equal_the_template_rendering():
    """S55: the newline after the end token is there, given and not sampled."""
    tokenizer = byte_tokenizer(CHATML)
    reply = Message("tool", "4", call_id="call-0-0")
    ids = np.concatenate([CHAT.open(ASK, []), CHAT.write(Message("assistant", "2+2")), CHAT.extend([reply])])
    rendered = tokenizer.apply_chat_template(ANSWERED, add_generation_prompt=True, return_dict=False)
    assert ids.tolist() == rendered
    assert CHAT.decode(CHAT.extend([reply])) == "\n<|im_start|>tool\n4<|im_end|>\n<|im_start|>assistant\n"


def test_a_turn_without_its_end_token_is_closed_as_the_template_renders_it():
    """S36, S55: end token and newline are given where the turn ended on a stop string."""
    tokenizer, reply = byte_tokenizer(CHATML), Message("tool", "4")
    said = np.array(tokenizer.encode("2+2", add_special_tokens=False))
    rendered = tokenizer.apply_chat_template(ANSWERED, add_generation_prompt=True, return_dict=False)
    assert np.concatenate([CHAT.open(ASK, []), said, CHAT.extend([reply], closed=False)]).tolist() == rendered


def test_a_call_whose_mark_is_a_stop_string_is_whole():
    """S36: the call's own mark ended it; without the mark it was cut."""
    text = '<tool_call>{"name": "calculator", "arguments": {"expression": "2+2"}}</tool_call>'
    whole = np.array(byte_tokenizer(CHATML).encode(text, add_special_tokens=False))
    assert CHAT.read(whole).calls == (ToolCall("call-0-0", "calculator", {"expression": "2+2"}),)
    [cut] = CHAT.read(whole[: -len("</tool_call>")]).calls
    assert isinstance(cut, BadCall)


def test_an_extension_does_not_depend_on_what_was_sampled():
    """S54, S63: nothing is found by slicing at a length of re-encoded text, so a pair that re-encodes shorter does no harm."""
    tokenizer = byte_tokenizer(CHATML, merges=[("a", "b")])
    chat = TemplateChat(tokenizer)
    a, b, start = (tokenizer.convert_tokens_to_ids(t) for t in ("a", "b", "<|im_start|>"))
    sampled = np.array([a, b, start, chat.stop_ids[0]])
    assert chat.read(sampled).content == "ab<|im_start|>"
    assert len(chat.write(chat.read(np.array([a, b, chat.stop_ids[0]])))) == 2
    assert (
        chat.decode(chat.extend([Message("user", "go on")])) == "\n<|im_start|>user\ngo on<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("template", "why"),
    [
        (CHATML.replace("m.content + '<|im_end|>\n'", "m.content + '\n'"), "no special token|followed by"),
        (CHATML.replace("m.content", "'x'"), "in the rendering 0 times"),
        (CHATML.replace("m.content +", "m.content + m.content +"), "in the rendering 2 times"),
    ],
)
def test_a_template_whose_turns_cannot_be_told_apart_is_refused(template, why):
    with pytest.raises(ValueError, match=f"expected a chat template whose turns can be told apart; got one where .*({why})"):
        TemplateChat(byte_tokenizer(template))


def test_a_spelt_mark_gets_no_space_from_a_tokenizer_that_begins_a_text_with_one():
    """As those made from SentencePiece do."""
    vocabulary = {piece: index for index, piece in enumerate(["<unk>", "▁", "\n", *map(chr, range(33, 127))])}
    metaspace = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    metaspace.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    metaspace.decoder = decoders.Metaspace(prepend_scheme="first")
    metaspace.add_special_tokens([AddedToken(mark, normalized=False) for mark in ("<|im_start|>", "<|im_end|>")])
    chat = TemplateChat(PreTrainedTokenizerFast(tokenizer_object=metaspace, chat_template=CHATML, eos_token="<|im_end|>"))
    ids = chat.open([Message("user", "a <|im_end|> b")], []).tolist()
    assert chat.decode(ids) == "<|im_start|>user\na <|im_end|> b<|im_end|>\n<|im_start|>assistant\n"
    assert ids.count(chat.stop_ids[0]) == 1


TURN = "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
ASKS = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
LOOP = "{% for m in messages %}"
CHANGING = {
    "numbered": LOOP + TURN.replace("m.role", "m.role + ' ' + loop.index|string") + "{% endfor %}" + ASKS,
    "window": "{% for m in messages[-5:] %}" + TURN + "{% endfor %}" + ASKS,
    "cut": LOOP + TURN.replace("m.content", "m.content[:20]") + "{% endfor %}" + ASKS,
    "another end": LOOP
    + TURN.replace("'<|im_end|>", "('<|other|>' if loop.index == 3 else '<|im_end|>') + '")
    + "{% endfor %}"
    + ASKS,
    "another prompt": LOOP + TURN + "{% endfor %}" + ASKS.replace("\n'", "\n' + ('go: ' if messages|length > 4 else '')"),
    "nothing": CHATML,
}
"""Templates that write a turn by its place or its length."""
SAYS = ["short", "an answer of more than twenty letters", "third", "fourth"]


def talked(chat):
    """A conversation as an agent holds it: before each turn what the policy reads, and the messages."""
    transcript, opening = Transcript(), [Message("system", "sys"), Message("user", "a question of more than twenty letters")]
    transcript.give(chat.open(opening, []), opening)
    read = [(chat.decode(transcript.row_ids()), len(opening))]
    for text in SAYS:
        said, replies = Message("assistant", text), [Message("user", "go on")]
        ids = np.array([*byte_tokenizer(CHATML).encode(text, add_special_tokens=False), chat.stop_ids[0]])
        transcript.sample(ids, np.zeros(len(ids)), np.zeros(len(ids)), said, "stop", 0.0)
        anew = chat.fork(transcript, replies, [])
        if anew is None:
            transcript.give(chat.extend(replies, said=said), replies)
        else:
            transcript.fork(anew, replies)
        read.append((chat.decode(transcript.row_ids()), len(transcript.messages)))
    return read, transcript.messages


@pytest.mark.parametrize("name", CHANGING)
def test_a_chat_that_forks_compares_whatever_was_probed(name):
    """The other way to work it out: ``transformers`` renders the messages before each turn."""
    tokenizer = byte_tokenizer(CHANGING[name])
    read, messages = talked(TemplateChat(tokenizer, history="fork"))
    written = [{"role": message.role, "content": message.content} for message in messages]
    assert [text for text, _ in read] == [
        tokenizer.apply_chat_template(written[:count], add_generation_prompt=True, tokenize=False) for _, count in read
    ]


@pytest.mark.parametrize("name", CHANGING)
def test_a_chat_that_appends_says_once_that_its_template_would_write_otherwise(name, caplog):
    chat = TemplateChat(byte_tokenizer(CHANGING[name]))
    talked(chat)
    talked(chat)
    told = [record.getMessage() for record in caplog.records if record.name == "stages.text.template"]
    assert len(told) == (name != "nothing")
    assert chat.rewrites == (() if name == "nothing" else ("turns",))
    assert all("expected a conversation that only grows; got " in text and 'set history="fork"' in text for text in told)


def test_messages_that_the_template_refuses_are_told():
    picky = "{% for m in messages if m.content == 'no' %}{{ raise_exception('mind your words') }}{% endfor %}" + CHATML
    chat = TemplateChat(byte_tokenizer(picky))
    with pytest.raises(ValueError, match=r"got roles \['user'\], on which it says TemplateError: mind your words"):
        chat.open([Message("user", "no")], [])


def test_there_is_exactly_one_begin_token():
    """S59, S60."""
    emits = TemplateChat(byte_tokenizer("{{ '<|bos|>' }}" + CHATML, begin="<|bos|>"))
    silent = TemplateChat(byte_tokenizer(CHATML, begin="<|bos|>"))
    none = TemplateChat(byte_tokenizer(CHATML))
    for chat, count in ((emits, 1), (silent, 1), (none, 0)):
        text = chat.decode(chat.open(ASK, []))
        assert text.count("<|bos|>") == count
        assert text.startswith("<|bos|>") == bool(count)
        assert "<|bos|>" not in chat.decode(chat.extend([Message("tool", "4")]))


def test_tools_are_shown_by_the_template_or_in_the_system_message():
    """S64: the rendering that is trained on is the one that was sampled from, tools included."""
    assert '"name": "calculator"' in CHAT.decode(CHAT.open(ASK, [CALCULATOR]))
    blind = TemplateChat(byte_tokenizer(CHATML.split("{% endif %}", 1)[1]))
    plain = blind.decode(blind.open(ASK, []))
    told = blind.decode(blind.open([Message("system", "Be brief."), *ASK], [CALCULATOR]))
    assert "calculator" not in plain
    assert told.startswith('<|im_start|>system\nBe brief.\n\nYou may call these functions:\n<tools>\n{"name": "calculator"')


def test_an_assistant_turn_with_a_call_is_written_and_read_alike():
    """S57, S61: a call is part of the text of its turn, so no template can clear it or choke on its arguments."""
    turn = Message("assistant", "Let me see.", (ToolCall("call-1-0", "calculator", {"expression": "2+2"}),))
    ids = CHAT.write(turn)
    assert ids[-1] == CHAT.stop_ids[0]
    assert CHAT.read(ids, turn=1) == turn
    assert '{"name": "calculator", "arguments": {"expression": "2+2"}}' in CHAT.decode(CHAT.open([*ASK, turn], []))


def test_any_declared_stop_token_ends_a_turn():
    """S35."""
    other = byte_tokenizer(CHATML).convert_tokens_to_ids("<|other|>")
    chat = TemplateChat(byte_tokenizer(CHATML), also_stop=(other,))
    assert chat.stop_ids[1] == other
    assert chat.read(np.array([*chat.write(Message("assistant", "4"))[:-1], other])).content == "4"


@given(st.lists(st.integers(-3, CHAT.vocab_size + 3), max_size=30))
def test_reading_never_raises(ids):
    message = CHAT.read(np.array(ids, np.int64))
    assert message.role == "assistant"


def test_a_bad_call_cannot_be_written():
    with pytest.raises(ValueError, match="expected calls that can be written"):
        CHAT.write(Message("assistant", "", (BadCall("call-0-0", "broken"),)))


def test_a_text_that_is_no_conversation_begins_as_the_tokenizer_begins_one_and_its_marks_are_tokens():
    begun = TemplateChat(byte_tokenizer(CHATML, begin="<|bos|>"))
    text = "<|im_start|>user\nhi<|im_end|>\n"
    assert begun.decode(begun.encode(text)) == f"<|bos|>{text}"
    assert begun.encode(text).tolist() == begun.encode(f"<|bos|>{text}").tolist()
    assert len(TemplateChat(byte_tokenizer(CHATML)).encode(text)) == len("user\nhi\n") + 2
