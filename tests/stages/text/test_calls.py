import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.records import BadCall, ToolCall
from stages.text.calls import MAX_PROBLEM_CHARS, parse_calls, write_call


def problem(text):
    _, (call,) = parse_calls(text)
    assert isinstance(call, BadCall), call
    return call.problem


def test_two_calls_with_braces_escapes_and_nesting_are_read_exactly():
    """S45, S49."""
    first = {"code": 'if (x) { "}" }\\ \n</tool_call>', "deep": {"a": [{"b": {}}]}}
    text = f"Let me see. {write_call('run', first)}\n{write_call('now', {})}"
    content, calls = parse_calls(text, turn=3)
    assert content == "Let me see."
    assert calls == (ToolCall("call-3-0", "run", first), ToolCall("call-3-1", "now", {}))


def test_a_call_sketched_in_reasoning_is_text():
    """S46."""
    call = write_call("delete", {"path": "/"})
    content, calls = parse_calls(f"<think>maybe {call}</think>\n{write_call('list', {})}")
    assert [c.name for c in calls] == ["list"]
    assert "delete" in content
    assert parse_calls(f"<think>never closed {call}")[1] == ()
    assert parse_calls(f"opened in the prompt {call}</think>done") == (f"opened in the prompt {call}</think>done", ())


def test_reasoning_tags_inside_an_argument_mean_nothing():
    """S46, the other way round."""
    arguments = {"text": "<think> and </think> and <tool_call>"}
    assert parse_calls(write_call("say", arguments))[1] == (ToolCall("call-0-0", "say", arguments),)


def test_broken_json_is_a_bad_call_and_the_next_call_is_still_read():
    """S44."""
    _, calls = parse_calls('<tool_call>{"name": "a" "arguments": {}}</tool_call>' + write_call("b", {"x": 1}))
    assert isinstance(calls[0], BadCall)
    assert "expected a JSON object after <tool_call>, got JSONDecodeError: Expecting ',' delimiter" in calls[0].problem
    assert calls[1] == ToolCall("call-0-1", "b", {"x": 1})


@pytest.mark.parametrize("length", range(len("<tool_call>"), len(write_call("write", {"path": "a", "text": "b"}))))
def test_a_call_cut_anywhere_is_a_bad_call(length):
    """S48."""
    assert problem(write_call("write", {"path": "a", "text": "b"})[:length])


def test_a_whole_call_before_a_cut_one_stays_whole():
    """S47."""
    _, calls = parse_calls(write_call("a", {}) + write_call("b", {})[:-3])
    assert calls[0] == ToolCall("call-0-0", "a", {})
    assert isinstance(calls[1], BadCall)


@pytest.mark.parametrize(
    ("arguments", "got"),
    [
        ('"\\uZZZZ"', "JSONDecodeError"),
        ('{"a": "\\uZZZZ"}', "JSONDecodeError"),
        ('{"a": "\\ud800"}', "UnicodeEncodeError"),
        ("null", 'expected "arguments" to be an object ({} for none), got None'),
        ('"{}"', "expected \"arguments\" to be an object ({} for none), got '{}'"),
        ("[1]", 'expected "arguments" to be an object'),
        ('{"a": NaN}', "NaN is no JSON value"),
        ('{"a": 1e999}', "Out of range float values"),
        ("[" * 100_000, "RecursionError"),
        ('{"a": ' + "9" * 5000 + "}", "ValueError"),
    ],
)
def test_arguments_that_are_no_object_never_become_a_call(arguments, got):
    """S51, S52."""
    assert got in problem(f'<tool_call>{{"name": "delete", "arguments": {arguments}}}</tool_call>')


def test_missing_fields_are_told():
    """S52: a call without arguments is not one with empty arguments."""
    assert "got None" in problem('<tool_call>{"name": "delete"}</tool_call>')
    assert 'expected "name"' in problem('<tool_call>{"arguments": {}}</tool_call>')
    assert "got list" in problem("<tool_call>[]</tool_call>")
    assert "got 'and more'" in problem('<tool_call>{"name": "a", "arguments": {}} and more')


@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                ["<tool_call>", "</tool_call>", "<think>", "</think>", '{"name": "a", "arguments": ', "{", "}", '"', "\\"]
            ),
            st.text(max_size=5),
        ),
        max_size=12,
    ).map("".join)
)
def test_parsing_never_raises_and_problems_are_one_bounded_line(text):
    content, calls = parse_calls(text)
    assert isinstance(content, str)
    assert len({call.id for call in calls}) == len(calls)
    for call in calls:
        if isinstance(call, BadCall):
            assert 0 < len(call.problem) <= MAX_PROBLEM_CHARS
            assert "\n" not in call.problem
            call.problem.encode()
        else:
            json.dumps(call.arguments).encode()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3),
    max_leaves=5,
)


@given(st.lists(st.dictionaries(st.text(st.characters(codec="utf-8")), JSON, max_size=3), max_size=3))
def test_what_is_written_is_read_back(many):
    text = "\n".join(write_call("f", arguments) for arguments in many)
    assert [call.arguments for call in parse_calls(text)[1]] == many
