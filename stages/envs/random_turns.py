"""Turns at random, for trying an environment without a model: any text, calls that fit their tool, and calls that do not.

Pure but for the generator it is given. Not a policy: it makes messages, no tokens.
"""

import random
import string
from collections.abc import Mapping, Sequence
from typing import Any

from stages.records import BadCall, Message, ToolCall
from stages.tools.tool import Tool

TEXTS = ("", " ", "0", "7", "-1", "3.5", "yes", "no", "a", "left", "{", "[1, 2]", "\n", "'; --", "é", "🙂", "x" * 500)
"""Texts that break what takes its input for granted."""
_DEEPEST = 4


def random_turn(tools: Sequence[Tool], rng: random.Random, turn: int) -> Message:
    """A turn that a model might say. It also calls what is not there, and where nothing is.

    Args:
        tools: what the environment shows; may be none.
        rng: decides.
        turn: its number, for the ids of calls.
    """
    if rng.random() < (0.3 if tools else 0.85):
        return Message("assistant", random_text(rng))
    count = rng.choice((1, 1, 1, 2))
    return Message("assistant", rng.choice(("", "so")), tuple(_call(tools, rng, f"call-{turn}-{i}") for i in range(count)))


def random_text(rng: random.Random) -> str:
    """A number, a word, or one of ``TEXTS``."""
    return rng.choice(
        (str(rng.randint(0, 100)), "".join(rng.choices(string.ascii_lowercase, k=rng.randint(1, 8))), rng.choice(TEXTS))
    )


def random_value(
    schema: Mapping[str, Any], rng: random.Random, *, root: Mapping[str, Any] | None = None, depth: int = 0
) -> Any:
    """A value that fits a JSON schema, as far as types, enums, bounds of numbers and references go.

    Args:
        schema: what it should fit.
        rng: decides.
        root: the schema with the definitions that references speak of; ``None`` for ``schema``.
        depth: how deep in the value this is; deep ones stay empty.
    """
    root = schema if root is None else root
    if "$ref" in schema:
        return random_value(_referred(schema["$ref"], root), rng, root=root, depth=depth + 1)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return rng.choice(list(schema["enum"]))
    for choice in ("anyOf", "oneOf"):
        if schema.get(choice):
            return random_value(rng.choice(list(schema[choice])), rng, root=root, depth=depth + 1)
    kind = schema.get("type", "string")
    kind = rng.choice(kind) if isinstance(kind, list) else kind
    match kind:
        case "integer":
            return rng.randint(*_bounds(schema))
        case "number":
            return round(rng.uniform(*_bounds(schema)), 3)
        case "boolean":
            return rng.random() < 0.5
        case "null":
            return None
        case "array":
            least = schema.get("minItems", 0)
            count = least if depth > _DEEPEST else rng.randint(least, least + 2)
            return [random_value(schema.get("items", {}), rng, root=root, depth=depth + 1) for _ in range(count)]
        case "object":
            return _object(schema, rng, root, depth)
        case _:
            return random_text(rng)


def _call(tools: Sequence[Tool], rng: random.Random, name_id: str) -> ToolCall | BadCall:
    chance = rng.random() * (1 if tools else 0.2)
    if chance < 0.1:
        return BadCall(name_id, "expected JSON, got something else")
    if chance < 0.2:
        return ToolCall(name_id, "no_such_tool", {})
    tool = rng.choice(list(tools))
    arguments = random_value(tool.parameters, rng)
    if chance < 0.3 and arguments:
        arguments = {**arguments, rng.choice(list(arguments)): {"unexpected": None}}
    return ToolCall(name_id, tool.name, arguments if isinstance(arguments, dict) else {})


def _object(schema: Mapping[str, Any], rng: random.Random, root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    required = set(schema.get("required", ()))
    return {
        name: random_value(inner, rng, root=root, depth=depth + 1)
        for name, inner in schema.get("properties", {}).items()
        if name in required or (depth <= _DEEPEST and rng.random() < 0.5)
    }


def _referred(name: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Any = root
    for part in name.removeprefix("#/").split("/"):
        found = found.get(part, {})
    return found


def _bounds(schema: Mapping[str, Any]) -> tuple[int, int]:
    least = int(schema.get("minimum", schema.get("exclusiveMinimum", -10)))
    most = int(schema.get("maximum", schema.get("exclusiveMaximum", max(least, 0) + 20)))
    inside = "exclusiveMinimum" in schema
    return (least + inside, max(least + inside, most - ("exclusiveMaximum" in schema)))
