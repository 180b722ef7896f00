import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.tools.calculator import calculator_tool, evaluate, number_text


@given(st.integers(-999, 999), st.sampled_from("+-*"), st.integers(0, 999), st.sampled_from("+-*"), st.integers(0, 999))
def test_values_equal_those_of_python(a, first, b, second, c):
    expression = f"{a}{first}({b} {second} {c})"
    inner = {"+": b + c, "-": b - c, "*": b * c}[second]
    assert evaluate(expression) == {"+": a + inner, "-": a - inner, "*": a * inner}[first]


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("1+2*3", "7"),
        ("7/2", "3.5"),
        ("8/2", "4"),
        ("1/3", "0.3333333333"),
        ("-7//2", "-4"),
        ("-7%3", "2"),
        ("2**-1", "0.5"),
        ("--3", "3"),
        ("+4", "4"),
        (" .5 + 1. ", "1.5"),
        ("9**64", str(9**64)),
    ],
)
def test_results_are_short_text(expression, text):
    assert number_text(evaluate(expression)) == text


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("1/0", "division by zero"),
        ("1//0", "division by zero"),
        ("0**-1", "division by zero"),
        ("2**65", "exponent too large"),
        ("9**64**2", "exponent too large"),
        ("(9**64)**2", "number too large"),
        ("9" * 100, "number too large"),
        ("9.9**64*9.9**64*9.9**64*9.9**64*9.9**64*9.9**64", "number too large"),
        ("(-8)**(1/3)", "root of a negative number"),
        ("1" * 201, "over 200 characters"),
        ("__import__", "unexpected _"),
        ("1if", "unexpected f"),
        ("", "not an expression"),
        ("1+", "not an expression"),
        ("1(2)", "not an expression"),
        ("(1)*" + "(" * 98 + "1", "not an expression"),
        ("007", "not an expression"),
        ("%1", "not an expression"),
    ],
)
def test_anything_else_is_refused_in_words_a_small_vocabulary_can_spell(expression, problem):
    with pytest.raises(ValueError, match=problem) as refused:
        evaluate(expression)
    assert str(refused.value) == str(refused.value).lower()


@given(st.text("0123456789.+-*/%() ", max_size=30))
def test_no_expression_raises_anything_but_a_value_error(expression):
    try:
        number = evaluate(expression)
    except ValueError:
        return
    assert len(number_text(number)) < 90


def test_the_tool_answers_and_a_wrong_expression_is_its_own_failure():
    tool = calculator_tool()
    answer = asyncio.run(tool.call({"expression": "12*34"}, (0,)))
    assert (answer.text, answer.outcome) == ("408", "answer")
    refused = asyncio.run(tool.call({"expression": "12*"}, (0,)))
    assert (refused.text, refused.outcome) == ("error: not an expression", "failed")
