"""All call formats over one corpus of written turns, and over random ones."""

import json
import time
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.records import BadCall, ToolCall
from stages.text.calls import FORMATS, FormatName, TurnParser, format_named, parse_calls
from stages.text.formats.found import MAX_PROBLEM_CHARS

HERMES = FORMATS["hermes"]
CORPUS = [json.loads(line) for line in Path(__file__).with_name("calls.jsonl").read_text().splitlines()]
FRAGMENTS = [
    *(
        "<think>",
        "</think>",
        '{"name": "a", "arguments": ',
        '{"x": 1}',
        "{",
        "}",
        "[",
        "]",
        '"',
        "\\",
        "; ",
        " ",
        "é",
        "\ud800",
    ),
    *("<tool_call>", "</tool_call>", "<function=", ">", "</function>", "<parameter=", "</parameter>", "[TOOL_CALLS]", "[ARGS]"),
    *("<|python_tag|>", "[f(", ")]", "(", "```tool_code\n", "\n```", "<|channel|>", "<|message|>", "<|start|>", "<|end|>"),
    *("to=functions.a", "analysis", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
]
SPOKEN = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=4), max_size=12).map("".join)
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
NAMES = st.from_regex(r"[a-z]{1,6}_", fullmatch=True)


def written(row):
    return row["text"] or row.get("prefix", "") + row.get("unit", "") * row.get("times", 0) + row.get("suffix", "")


def test_the_corpus_is_large_and_each_line_has_a_reason_of_its_own():
    assert len(CORPUS) >= 200
    assert len({(row["format"], row["reason"]) for row in CORPUS}) == len(CORPUS)
    assert {row["format"] for row in CORPUS} == set(FORMATS)


def test_formats_have_the_names_that_settings_take():
    assert get_args(FormatName) == tuple(FORMATS)


@pytest.mark.parametrize("name", FORMATS)
def test_every_turn_of_the_corpus_comes_out_as_it_should(name):
    """S44, S45, S46, S48, S49, S51, S52: nothing broken, cut, sketched in reasoning or without arguments becomes a call."""
    for row in (row for row in CORPUS if row["format"] == name):
        content, calls = parse_calls(written(row), 3, FORMATS[name], thinking=row.get("thinking", False))
        assert (content, len(calls)) == (row["content"], len(row["calls"])), row["reason"]
        assert [call.id for call in calls] == [f"call-3-{index}" for index in range(len(calls))]
        for got, wanted in zip(calls, row["calls"], strict=True):
            if isinstance(wanted, str):
                assert isinstance(got, BadCall), row["reason"]
                assert wanted.removeprefix("bad: ") in got.problem, row["reason"]
                assert 0 < len(got.problem) <= MAX_PROBLEM_CHARS, row["reason"]
            else:
                assert got == ToolCall(got.id, *wanted), row["reason"]


@pytest.mark.parametrize("name", FORMATS)
def test_a_turn_of_the_corpus_reads_the_same_letter_by_letter(name):
    for row in (row for row in CORPUS if row["format"] == name and row["text"]):
        thinking = row.get("thinking", False)
        parser = TurnParser(FORMATS[name], thinking=thinking)
        for letter in row["text"]:
            parser.feed(letter)
        assert parser.finish() == parse_calls(row["text"], 0, FORMATS[name], thinking=thinking), row["reason"]


@pytest.mark.parametrize("name", FORMATS)
def test_a_cut_call_is_never_a_call(name):
    """S48: of the turn's beginnings, none has a call that is not the whole one."""
    call = ToolCall("call-0-0", "write", {"path": "a", "text": "b} )] </tool_call>"})
    text = FORMATS[name].write([call])
    for length in range(len(text)):
        for got in parse_calls(text[:length], 0, FORMATS[name])[1]:
            assert isinstance(got, BadCall) or got == call
    assert parse_calls(text, 0, FORMATS[name])[1] == (call,)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_text_is_read_without_an_error_and_in_any_pieces_alike(name, data):
    """S44, S45: whatever a policy says, calls have ids of their own, and problems are one bounded line that a log can hold."""
    text = data.draw(SPOKEN)
    content, calls = parse_calls(text, 0, FORMATS[name])
    assert len({call.id for call in calls}) == len(calls)
    for call in calls:
        if isinstance(call, BadCall):
            assert 0 < len(call.problem) <= MAX_PROBLEM_CHARS
            assert "\n" not in call.problem
            call.problem.encode()
        else:
            json.dumps(call.arguments, allow_nan=False).encode()
    parser, place = TurnParser(FORMATS[name]), 0
    for size in data.draw(st.lists(st.integers(0, 9), max_size=12)):
        parser.feed(text[place : place + size])
        place += size
    parser.feed(text[place:])
    assert parser.finish() == (content, calls)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "keys"),
    [*((name, TEXT) for name in ("hermes", "llama_json", "mistral", "deepseek")), ("pythonic", NAMES), ("gemma", NAMES)],
)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_calls_are_read_back_as_written_whatever_their_arguments(name, keys, data):
    """Two formats need Python's names for them."""
    many = data.draw(st.lists(st.dictionaries(keys, JSON, max_size=3), min_size=1, max_size=3))
    calls = tuple(ToolCall(f"call-0-{index}", "f", arguments) for index, arguments in enumerate(many))
    assert parse_calls(FORMATS[name].write(calls), 0, FORMATS[name]) == ("", calls)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=60, deadline=None)
@given(many=st.lists(st.dictionaries(NAMES, SPOKEN | JSON, max_size=3), min_size=1, max_size=3))
def test_what_a_format_writes_it_reads_back_and_what_it_would_not_it_refuses(name, many):
    """Values made of the marks of all formats. Where values have no types in the text, they come back as their text."""
    calls = tuple(ToolCall(f"call-0-{index}", "f", arguments) for index, arguments in enumerate(many))
    try:
        text = FORMATS[name].write(calls)
    except ValueError:
        return
    content, got = parse_calls(text, 0, FORMATS[name])
    if FORMATS[name].untyped:
        shown = [{k: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for k, v in each.items()} for each in many]
        calls = tuple(ToolCall(call.id, "f", arguments) for call, arguments in zip(calls, shown, strict=True))
    assert (content, got) == ("", calls)


@pytest.mark.parametrize(
    ("name", "value"), [("xml", "a</parameter>b"), ("xml", "\n" * 2 + "</function>\n</parameter>"), ("hermes", float("nan"))]
)
def test_a_value_that_would_end_its_own_call_is_refused(name, value):
    with pytest.raises(ValueError, match=f"expected calls that are read back as they are written; got .* in the {name} format"):
        FORMATS[name].write([ToolCall("", "f", {"x": value})])


def test_an_answer_in_json_that_has_a_name_is_no_call():
    """The tools that are known tell an answer about somebody from a call without arguments."""
    schemas, answer = {"search": {}}, '{"name": "Ada", "age": 36}'
    assert parse_calls(answer, 0, FORMATS["llama_json"], schemas=schemas) == (answer, ())
    for call in ('{"name": "search"}', '{"name": "serch", "parameters": null}'):
        [bad] = parse_calls(call, 0, FORMATS["llama_json"], schemas=schemas)[1]
        assert isinstance(bad, BadCall)
    [unknown] = parse_calls('{"name": "serch", "parameters": {}}', 0, FORMATS["llama_json"], schemas=schemas)[1]
    assert unknown == ToolCall("call-0-0", "serch", {})


@settings(max_examples=60, deadline=None)
@given(TEXT.filter(lambda text: text == text.strip("\n")), st.integers(), st.booleans(), st.lists(st.integers(), max_size=2))
def test_texts_get_their_types_from_the_schema_of_the_tool(text, count, flag, items):
    """Worked out by the schema, not by the look of the value: a number for a text stays text."""
    schema = {"text": {"type": "string"}, "count": {"type": "integer"}, "flag": {"type": "boolean"}, "items": {"type": "array"}}
    schema["maybe"] = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    call = ToolCall("call-0-0", "f", {"text": text, "count": count, "flag": flag, "items": items, "maybe": None})
    xml = FORMATS["xml"]
    assert parse_calls(xml.write([call]), 0, xml, schemas={"f": {"properties": schema}})[1] == (call,)
    digits = ToolCall("call-0-0", "f", {"text": "12", "count": "many"})
    assert parse_calls(xml.write([digits]), 0, xml, schemas={"f": {"properties": schema}})[1] == (digits,)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_a_megabyte_takes_time_in_proportion_to_its_length(name):
    """The largest turns a policy could say, whole and in pieces of seven characters; quadratic time would be minutes."""
    call = FORMATS[name].write([ToolCall("", "f", {"text": 'a\n"}' * 200})])
    for unit in (call, "<think>", "</think>", '{"name":', "<tool_call>", "[TOOL_CALLS]", "a "):
        text = unit * (1_000_000 // len(unit))
        started = time.process_time()
        parse_calls(text, 0, FORMATS[name])
        assert time.process_time() - started < 2.0, unit
    parser, started = TurnParser(FORMATS[name]), time.process_time()
    for place in range(0, len(text), 7):
        parser.feed(text[place : place + 7])
    parser.finish()
    assert time.process_time() - started < 4.0


def test_what_a_format_cannot_hold_is_refused():
    with pytest.raises(ValueError, match="expected one call; got 2"):
        FORMATS["harmony"].write([ToolCall("", "a", {}), ToolCall("", "b", {})])
    with pytest.raises(ValueError, match=r"expected arguments named as Python names; got \['a b'\]"):
        FORMATS["pythonic"].write([ToolCall("", "a", {"a b": 1})])
    with pytest.raises(ValueError, match=r"expected a call format among harmony, .*; got 'yaml'"):
        format_named("yaml")
