"""Turns at random: calls fit the schema of their tool, and every kind of turn comes."""

import random
from collections import Counter
from typing import Literal

import pydantic
import pytest

from stages.envs.random_turns import random_turn, random_value
from stages.records import BadCall, ToolCall
from stages.tools.calculator import calculator_tool


class Inner(pydantic.BaseModel):
    size: int = pydantic.Field(ge=3, lt=5)
    share: float = pydantic.Field(gt=0, le=1)


class Nested(pydantic.BaseModel):
    """What pydantic writes schemas with references, unions, enums and bounds for."""

    kind: Literal["a", "b"]
    always: Literal["fixed"]
    inner: Inner
    many: list[Inner] = pydantic.Field(min_length=1)
    maybe: bool | None
    text: str = ""


@pytest.mark.parametrize("model", [Inner, Nested])
def test_values_fit_the_schema_that_pydantic_checks(model):
    """The check is pydantic's own."""
    rng = random.Random(0)
    for _ in range(200):
        model.model_validate(random_value(model.model_json_schema(), rng))


def test_a_schema_that_speaks_of_itself_comes_to_an_end():
    schema = {"$defs": {"n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"}
    rng = random.Random(0)
    assert all(isinstance(random_value(schema, rng), dict) for _ in range(50))


def test_every_kind_of_turn_comes_and_ids_differ():
    rng, tool = random.Random(0), calculator_tool()
    kinds = Counter()
    for turn in range(300):
        message = random_turn([tool], rng, turn)
        ids = [call.id for call in message.calls]
        assert len(set(ids)) == len(ids)
        kinds["text"] += not message.calls
        kinds["two"] += len(message.calls) == 2
        for call in message.calls:
            kinds["bad"] += isinstance(call, BadCall)
            if isinstance(call, ToolCall):
                kinds["unknown"] += call.name != tool.name
                kinds["fits"] += call.name == tool.name and isinstance(call.arguments.get("expression"), str)
                kinds["misfits"] += call.name == tool.name and not isinstance(call.arguments.get("expression"), str)
    assert all(kinds[kind] >= 5 for kind in ("text", "two", "bad", "unknown", "fits", "misfits")), kinds


def test_without_tools_there_are_calls_all_the_same():
    """A model writes one whether or not there is something to call."""
    rng = random.Random(0)
    kinds = Counter(type(call) for turn in range(300) for call in random_turn([], rng, turn).calls)
    assert 10 <= kinds[BadCall] <= 100
    assert 10 <= kinds[ToolCall] <= 100
