"""What a model may know of a function: name, description and schema, out of its annotations and its docstring.

Through pydantic, which also checks the arguments of a call. It calls nothing: ``function.py`` does.
"""

import inspect
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

import pydantic


class Signature:
    """Name, description and parameters of a typed function."""

    def __init__(self, function: Callable[..., Any], name: str | None = None):
        """Read a function.

        Args:
            function: every parameter annotated, ``self`` of a method apart; the docstring's first paragraph describes it,
                ``Args:`` its parameters.
            name: name for the model; ``None`` takes the function's.

        Raises:
            TypeError: a parameter has no annotation or is variadic, or there is no docstring.
        """
        self.name = name or function.__name__
        self.description, told = _documented(function)
        self._arguments = _arguments_model(function, told)
        self.parameters = _schema(self._arguments)

    def read(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments as the function takes them, defaults filled in.

        Raises:
            ValueError: they do not fit; says all faults in one line.
        """
        try:
            # As JSON, so that strict mode takes what JSON can say: a list for a tuple, text for a date.
            checked = self._arguments.model_validate_json(json.dumps(dict(arguments)))
        except pydantic.ValidationError as error:
            raise ValueError(_faults(error)) from error
        return {field: getattr(checked, field) for field in type(checked).model_fields}


def _documented(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The first paragraph of a Google-style docstring, and what its ``Args`` section says of each parameter."""
    text = inspect.getdoc(function)
    if not text:
        raise TypeError(
            f"expected a docstring, the model's only description of the tool; got none, in tool {function.__name__}; write one"
        )
    section = re.search(r"^Args:\n((?:[ \t]+.*\n?|\n)*)", text, re.MULTILINE)
    entries = re.findall(r"^ {4}(\w+)[^:\n]*: (.*(?:\n {5,}.*)*)", section.group(1) if section else "", re.MULTILINE)
    return " ".join(text.split("\n\n")[0].split()), {name: " ".join(told.split()) for name, told in entries}


def _arguments_model(function: Callable[..., Any], told: dict[str, str]) -> type[pydantic.BaseModel]:
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    for index, parameter in enumerate(inspect.signature(function).parameters.values()):
        named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if index == 0 and parameter.name == "self":
            continue
        if parameter.name not in hints or not named:
            raise TypeError(
                f"expected named parameters with annotations; got {parameter}, in tool {function.__name__}; "
                "annotate it, or wrap the function in one with named parameters"
            )
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (hints[parameter.name], pydantic.Field(default, description=told.get(parameter.name)))
    # Strict: a model that writes "2" for 2 has not followed the schema, and a silent repair would teach it to go on.
    config = pydantic.ConfigDict(extra="forbid", strict=True)
    return pydantic.create_model(function.__name__, __config__=config, **fields)


def _schema(model: type[pydantic.BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema()
    properties = {name: {k: v for k, v in told.items() if k != "title"} for name, told in schema["properties"].items()}
    return {k: v for k, v in schema.items() if k != "title"} | {"properties": properties}


def _faults(error: pydantic.ValidationError) -> str:
    return "; ".join(f"{'.'.join(map(str, fault['loc'])) or 'arguments'}: {fault['msg']}" for fault in error.errors())
