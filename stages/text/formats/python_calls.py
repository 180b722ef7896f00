"""Calls as Python call expressions with literal arguments. Read by the ``ast`` module, never run."""

import ast
import json
import keyword
import warnings
from typing import Any

from stages.text.formats.found import Found, problem, shown

MOST_CHARACTERS = 100_000
"""Longer expressions are refused: Python's own parser takes time and memory far beyond the text."""


def read_expression(text: str) -> list[Found]:
    """One call, or a list of calls, as ``NAME(KEY=LITERAL, ...)``; what is wrong stands in the place of a call."""
    if len(text) > MOST_CHARACTERS:
        return [problem(f"expected a call of at most {MOST_CHARACTERS} characters, got {len(text)}")]
    try:
        with warnings.catch_warnings():
            # An odd escape in a string is for Python to warn of; here it is the text it stands for.
            warnings.simplefilter("ignore")
            body = ast.parse(text.strip(), mode="eval").body
        return [_call(node) for node in body.elts] if isinstance(body, ast.List) else [_call(body)]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return [problem(f"expected Python calls, got {type(error).__name__}: {str(error)[:80]} in {shown(text)}")]


def write_expression(name: str, arguments: dict[str, Any]) -> str:
    """A call as Python would write it.

    Raises:
        ValueError: a name of an argument is no Python name.
    """
    odd = [key for key in arguments if not key.isidentifier() or keyword.iskeyword(key)]
    if odd:
        raise ValueError(f"expected arguments named as Python names; got {odd}, in a call of {name}; use another call format")
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def _call(node: ast.expr) -> Found:
    name = _name(node.func) if isinstance(node, ast.Call) else None
    if not isinstance(node, ast.Call) or name is None:
        return problem(f"expected a call NAME(KEY=VALUE), got {shown(ast.unparse(node))}")
    if node.args or any(argument.arg is None for argument in node.keywords):
        return problem(f"expected arguments of {name} by name, got some without")
    keys = [str(argument.arg) for argument in node.keywords]
    if len(set(keys)) != len(keys):
        return problem(f"expected each argument of {name} once, got {keys}")
    try:
        arguments = {key: ast.literal_eval(argument.value) for key, argument in zip(keys, node.keywords, strict=True)}
        # What JSON cannot hold no tool gets; a tuple comes out as a list.
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        text.encode()
        if any(not isinstance(key, str) for value in arguments.values() for key in _keys(value)):
            raise ValueError("a key that is no text")
        return name, json.loads(text)
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        # Not its text, which names places in memory: what a policy reads must be the same in every run.
        return problem(f"expected literal arguments of {name} that JSON can hold, got {type(error).__name__}")


def _name(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    before = _name(node.value) if isinstance(node, ast.Attribute) else None
    return f"{before}.{node.attr}" if before is not None and isinstance(node, ast.Attribute) else None


def _keys(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*value, *(key for inner in value.values() for key in _keys(inner))]
    return [key for inner in value for key in _keys(inner)] if isinstance(value, list | tuple) else []
