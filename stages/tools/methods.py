"""Tools out of a class with state of its own for each episode: its public methods are the tools.

An object is made when an episode begins and closed when it ends. Methods may be plain or coroutine functions, as in
``function.py``; a method ``close``, plain or not, is no tool but called at the end.
"""

import inspect
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio.to_thread

from stages.exits import exits_as_errors
from stages.tools.function import FunctionTool
from stages.tools.limits import ToolLimits
from stages.tools.signature import Signature
from stages.tools.tool import Tool


@dataclass(frozen=True)
class MethodSpec:
    """What is known of a method before there is an object.

    Attributes:
        name: that the model calls it by.
        description: what it does.
        parameters: JSON schema of its arguments.
        needs: what a call asks the graph for.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    needs: Mapping[str, int]


class MethodTools:
    """The tools of a class, over a new object for each episode."""

    def __init__(
        self,
        make: Callable[[], object],
        *,
        of: type | None = None,
        limits_of: Mapping[str, ToolLimits] | None = None,
        **limits: Any,
    ):
        """Read the methods.

        Args:
            make: the class, or a function that makes an object of it. It runs on the event loop and takes nothing that needs
                freeing before it returns.
            of: the class, where ``make`` is not it.
            limits_of: limits by name of the method, for those that differ.
            limits: fields of ``ToolLimits``, for all other methods.

        Raises:
            TypeError: the class has no public method, or one that a model could not be told of; see ``Signature``.
            ValueError: ``limits_of`` names a method that is not there.
        """
        cls = of or make
        if not isinstance(cls, type):
            raise TypeError(f"expected a class; got {cls!r}, in MethodTools(make); name the class it makes with of=...")
        self._make = make
        self._signatures = {name: Signature(function) for name, function in _methods(cls)}
        if not self._signatures:
            raise TypeError(f"expected a class with public methods; got none, in MethodTools({cls.__name__}); write one")
        own = limits_of or {}
        unknown = sorted(set(own) - set(self._signatures))
        if unknown:
            raise ValueError(
                f"expected names among {', '.join(self._signatures)}; got {', '.join(unknown)}, in MethodTools(limits_of); "
                "correct them"
            )
        every = ToolLimits(**limits)
        self._limits = {name: own.get(name, every) for name in self._signatures}

    @property
    def specs(self) -> Sequence[MethodSpec]:
        """Each tool as the model is shown it."""
        return tuple(
            MethodSpec(name, signature.description, signature.parameters, self._limits[name].needs)
            for name, signature in self._signatures.items()
        )

    @asynccontextmanager
    async def open(self, key: tuple[int, int, int, int]) -> AsyncGenerator[Sequence[Tool]]:
        """See ``Toolset.open``."""
        made = self._make()
        try:
            yield tuple(
                FunctionTool(getattr(made, name), signature=signature, **self._limits[name].model_dump())
                for name, signature in self._signatures.items()
            )
        finally:
            await _close(made)


def _methods(cls: type) -> list[tuple[str, Callable[..., Any]]]:
    """Public methods in the order in which the class and then its ancestors write them."""
    found: dict[str, Callable[..., Any]] = {}
    for owner in cls.__mro__[:-1]:
        for name, member in vars(owner).items():
            if not name.startswith("_") and name != "close" and inspect.isfunction(member):
                found.setdefault(name, member)
    return list(found.items())


async def _close(made: object) -> None:
    close = getattr(made, "close", None)
    if close is None:
        return
    if inspect.iscoroutinefunction(close):
        await close()
    else:
        # Given up with whoever waits: what hangs in a thread must not hold the episode.
        await anyio.to_thread.run_sync(_plain, close, abandon_on_cancel=True)


def _plain(close: Callable[[], Any]) -> None:
    with exits_as_errors():
        close()
