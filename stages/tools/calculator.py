"""A calculator: exact integer arithmetic on short expressions, bounded in size, without ``eval``.

Its words are few and in lower case, so that a small vocabulary can spell them and a small context can hold them.
"""

import ast
import operator
from collections.abc import Callable

from stages.tools.function import FunctionTool

MAX_CHARS = 200
MAX_BITS = 256
MAX_EXPONENT = 64
_ALLOWED = set("0123456789.+-*/%() ")

Number = int | float


def evaluate(expression: str) -> Number:
    """Value of an arithmetic expression in Python's syntax and precedence.

    Numbers, ``+ - * / // % **``, parentheses and signs. A quotient that is whole is an int; other quotients are floats.

    Args:
        expression: at most 200 characters.

    Raises:
        ValueError: it is not such an expression, divides by zero, or a value or exponent is too large.
    """
    if len(expression) > MAX_CHARS:
        raise ValueError(f"over {MAX_CHARS} characters")
    # Checked first: the tokenizer of the ast module warns about some texts that it accepts, such as 1if.
    strange = sorted(set(expression) - _ALLOWED)
    if strange:
        raise ValueError(f"unexpected {strange[0]}")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, MemoryError, RecursionError) as error:
        raise ValueError("not an expression") from error
    try:
        return _value(tree.body)
    except ZeroDivisionError as error:
        raise ValueError("division by zero") from error
    except OverflowError as error:
        raise ValueError("number too large") from error


def number_text(number: Number) -> str:
    """A number as short text: ints in full, floats with at most 10 significant digits."""
    return str(number) if isinstance(number, int) else f"{number:.10g}"


def calculator_tool(deadline_s: float | None = 30.0) -> FunctionTool:
    """The tool ``calculator(expression)``."""
    return FunctionTool(calculator, deadline_s=deadline_s)


# A coroutine function, so that it runs on the loop: an expression this short takes microseconds, a thread takes longer.
async def calculator(expression: str) -> str:
    """Evaluate an arithmetic expression and return its value.

    Args:
        expression: numbers, + - * / // % ** and parentheses, for example 12*(3+4).
    """
    return number_text(evaluate(expression))


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=int() | float() as value):
            return _small(value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand)
        case ast.BinOp(left=left, op=op, right=right):
            return _small(_OPERATIONS[type(op)](_value(left), _value(right)))
    raise ValueError("not an expression")


def _small(value: Number) -> Number:
    if (isinstance(value, int) and value.bit_length() > MAX_BITS) or abs(value) == float("inf"):
        raise ValueError("number too large")
    return value


def _divide(left: Number, right: Number) -> Number:
    if isinstance(left, int) and isinstance(right, int) and right != 0 and left % right == 0:
        return left // right
    return left / right


def _power(base: Number, exponent: Number) -> Number:
    if abs(exponent) > MAX_EXPONENT:
        raise ValueError("exponent too large")
    if base < 0 and not isinstance(exponent, int):
        raise ValueError("root of a negative number")
    return base**exponent


_OPERATIONS: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _divide,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
