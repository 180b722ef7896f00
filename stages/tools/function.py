"""Tools out of typed Python functions: schema from the signature, description from the docstring, through pydantic.

A plain function runs in a worker thread, so that it never holds up the event loop; a coroutine function runs on the loop.
"""

import asyncio
import contextlib
import functools
import inspect
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

import anyio
import anyio.to_thread
import pydantic

from stages.cancellation import cancel_requested
from stages.tools.tool import BrokenToolError, ToolAnswer, bounded, failure


class FunctionTool:
    """A function the model may call. What it returns is turned into text with ``str``."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        deadline_s: float | None = 30.0,
        max_output_chars: int = 2000,
        max_threads: int = 256,
    ):
        """Read the signature and the docstring.

        Args:
            function: every parameter annotated; the docstring's first paragraph describes it, ``Args:`` its parameters.
            name: name for the model; ``None`` takes the function's.
            deadline_s: most seconds of one call, ``None`` for no limit. Waiting for a thread does not count. A plain function
                goes on in its thread after that, since a thread cannot be stopped: its result is dropped.
            max_output_chars: longest answer, in characters.
            max_threads: most calls of a plain function awaited at once; further ones wait in order. Coroutine functions need
                no thread.

        Raises:
            TypeError: a parameter has no annotation or is variadic, or there is no docstring.
        """
        self.name = name or function.__name__
        self.description, told = _documented(function)
        self._arguments = _arguments_model(function, told)
        self.parameters = _schema(self._arguments)
        self._function = function
        self._deadline_s = deadline_s
        self._max_output_chars = max_output_chars
        # Of its own: in the threads that all code of a program shares, calls would queue behind each other's.
        self._turns = None if inspect.iscoroutinefunction(function) else anyio.CapacityLimiter(max_threads)
        self._threads = anyio.CapacityLimiter(math.inf)

    async def call(self, arguments: Mapping[str, Any], key: tuple[int, ...]) -> ToolAnswer:
        """See ``Tool.call``."""
        try:
            # As JSON, so that strict mode takes what JSON can say: a list for a tuple, text for a date.
            checked = self._arguments.model_validate_json(json.dumps(dict(arguments)))
        except pydantic.ValidationError as error:
            return self._bounded(ToolAnswer(f"error: {_faults(error)}", "invalid"))
        return self._bounded(await self._run({field: getattr(checked, field) for field in type(checked).model_fields}))

    async def _run(self, arguments: dict[str, Any]) -> ToolAnswer:
        try:
            async with self._turns or contextlib.nullcontext():
                with anyio.move_on_after(self._deadline_s):
                    return ToolAnswer(str(await self._invoke(arguments)))
            return failure(f"no answer within {self._deadline_s:g} s")
        except asyncio.CancelledError:
            if cancel_requested():
                raise
            return failure("the call was cancelled")
        except BrokenToolError:
            raise
        # Whatever else a tool does wrong is something for the model to read.
        except Exception as error:
            return failure(str(error) or type(error).__name__)

    async def _invoke(self, arguments: dict[str, Any]) -> Any:
        if self._turns is None:
            return await self._function(**arguments)
        call = functools.partial(self._function, **arguments)
        return await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=self._threads)

    def _bounded(self, answer: ToolAnswer) -> ToolAnswer:
        return ToolAnswer(bounded(answer.text, self._max_output_chars), answer.outcome)


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
    for parameter in inspect.signature(function).parameters.values():
        named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
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
