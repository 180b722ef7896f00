"""Tools out of typed Python functions: schema from the signature, description from the docstring.

A plain function runs in a worker thread, so that it never holds up the event loop; a coroutine function runs on the loop.
"""

import contextlib
import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import anyio.to_thread

from stages.exits import exits_as_errors
from stages.tools.limits import ToolLimits, cut_to_limits, limited
from stages.tools.signature import Signature
from stages.tools.tool import ToolAnswer


class FunctionTool:
    """A function the model may call. What it returns is turned into text with ``str``."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        signature: Signature | None = None,
        max_threads: int = 256,
        **limits: Any,
    ):
        """Read the signature and the docstring.

        Args:
            function: every parameter annotated; the docstring's first paragraph describes it, ``Args:`` its parameters.
            name: name for the model; ``None`` takes the function's.
            signature: what was read of the function before; ``None`` reads it now.
            max_threads: most calls of a plain function awaited at once; further ones wait in order. Coroutine functions need
                no thread.
            limits: fields of ``ToolLimits``. A plain function goes on in its thread after its deadline, since a thread cannot
                be stopped: its result is dropped. Waiting for a thread does not count against the deadline.

        Raises:
            TypeError: a parameter has no annotation or is variadic, or there is no docstring.
        """
        self._signature = signature or Signature(function, name)
        self.name = self._signature.name
        self.description = self._signature.description
        self.parameters = self._signature.parameters
        self.limits = ToolLimits(**limits)
        self.needs = self.limits.needs
        self._function = function
        # Of its own: in the threads that all code of a program shares, calls would queue behind each other's.
        self._turns = None if inspect.iscoroutinefunction(function) else anyio.CapacityLimiter(max_threads)
        self._threads = anyio.CapacityLimiter(math.inf)

    async def call(self, arguments: Mapping[str, Any], key: tuple[int, ...]) -> ToolAnswer:
        """See ``Tool.call``."""
        try:
            read = self._signature.read(arguments)
        except ValueError as error:
            return ToolAnswer(cut_to_limits(f"error: {error}", self.limits), "invalid")
        return await limited(lambda: self._invoke(read), self.limits, self._turns or contextlib.nullcontext())

    async def _invoke(self, arguments: dict[str, Any]) -> Any:
        if self._turns is None:
            return await self._function(**arguments)
        call = functools.partial(_plain, self._function, arguments)
        return await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=self._threads)


def _plain(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    with exits_as_errors():  # in the thread, where it is known whose they are
        return function(**arguments)
