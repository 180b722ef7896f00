"""Faults on purpose: a stage wrapped so that a share of its attempts raises, filters, takes long or handles cancels badly.

Which attempt meets what is a function of (seed, node, path, retry), never of time, so the same attempt after a cancel meets the
same again, and an oracle can ask ``Faults.of`` what becomes of an item.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from typing import Any, Literal, cast

from .._context import Context
from .._graph import Graph
from .._item import Filtered
from .._types import hints_of
from ._chance import chance, exponential, number, pareto

Kind = Literal["raise", "filter", "delay", "straggle", "cancel", "deaf"]
"""``raise``: ``InjectedError``. ``filter``: ``Filtered("injected")``. ``delay``: an exponential wait before the stage.
``straggle``: a wait with a Pareto tail of 1.5, whose variance is infinite. ``cancel``: a cancellation nobody asked for, as some
clients let out on a timeout; the engine makes it the item's failure. ``deaf``: an exponential wait that swallows a cancel and
works on."""


class InjectedError(RuntimeError):
    """Raised by a wrapped stage on purpose."""


@dataclass(frozen=True)
class Faults:
    """What befalls a stage.

    Attributes:
        rate: share of the attempts that meet a fault, from 0 to 1.
        kinds: the faults, each as likely as the others.
        seed: of the draws.
        delay_s: mean of a ``delay`` and of a ``deaf`` wait, least of a ``straggle``, in seconds.
    """

    rate: float
    kinds: tuple[Kind, ...] = ("raise",)
    seed: int = 0
    delay_s: float = 1.0

    def of(self, node: str, path: tuple[int, ...], retry: int = 0) -> Kind | None:
        """Tell what an attempt meets, ``None`` for nothing."""
        return self._of(number(node), path, retry)

    def wrap(self, stage: Any) -> "Faulty":
        """Make the stage that meets these faults. It keeps the types of the one inside, and opens and closes it.

        Raises:
            TypeError: what is given is no stage or plain sink: a source and a collector have no attempts to strike.
        """
        if not callable(stage):
            raise TypeError(
                f"expected a stage or a plain sink to wrap, got {type(stage).__name__} (Faults.wrap); "
                "a Script raises in a source, and a collector that fails ends the run"
            )
        takes, gives = hints_of(stage)

        def call(self: Faulty, value: Any, context: Context) -> Any:
            return self.strike(value, context)

        call.__annotations__ = {"value": takes, "context": Context, "return": gives}
        made = type("Faulty", (Faulty,), {"__call__": call, "__doc__": Faulty.__doc__})
        return cast("Faulty", made(stage, self))

    def _of(self, node: int, path: tuple[int, ...], retry: int) -> Kind | None:
        if chance(self.seed, node, path, retry) >= self.rate:
            return None
        return self.kinds[int(chance(self.seed, node, path, retry, 1) * len(self.kinds))]

    def _seconds(self, kind: Kind, node: int, path: tuple[int, ...], retry: int) -> float:
        share = chance(self.seed, node, path, retry, 2)
        return pareto(share, self.delay_s) if kind == "straggle" else exponential(share, self.delay_s)


class Faulty:
    """A stage that meets faults. Where it meets none, the stage inside is called as it would be without it."""

    def __init__(self, stage: Any, faults: Faults) -> None:
        self._stage, self._faults = stage, faults
        self._names: dict[str, int] = {}
        self._open = AsyncExitStack()

    async def __aenter__(self) -> "Faulty":
        """Open the stage inside where it holds something."""
        stage = self._stage
        if isinstance(stage, AbstractAsyncContextManager):
            await self._open.enter_async_context(cast("AbstractAsyncContextManager[Any]", stage))
        return self

    async def __aexit__(self, *error: Any) -> bool:
        """Close the stage inside."""
        return bool(await self._open.__aexit__(*error))

    def strike(self, value: Any, context: Context) -> Any:
        """Make one attempt; what it gives is awaited where it is awaitable."""
        node = self._names.get(context.node)
        if node is None:
            node = self._names[context.node] = number(context.node)
        path, retry = context.path, context.retry
        kind = self._faults._of(node, path, retry)  # pyright: ignore[reportPrivateUsage] - one noun in two classes
        if kind is None:
            return self._stage(value, context)
        if kind == "filter":
            return Filtered("injected")
        if kind == "raise":
            raise InjectedError("injected by Faults")
        if kind == "cancel":
            raise asyncio.CancelledError("injected by Faults")
        seconds = self._faults._seconds(kind, node, path, retry)  # pyright: ignore[reportPrivateUsage] - as above
        return self._late(value, context, seconds, deaf=kind == "deaf")

    async def _late(self, value: Any, context: Context, seconds: float, *, deaf: bool) -> Any:
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            if not deaf:
                raise
        result = self._stage(value, context)
        return await result if hasattr(result, "__await__") else result


def faulty(graph: Graph, faults: Mapping[str, Faults]) -> Graph:
    """Give a graph in which the stages at these nodes meet faults: ``faulty(graph, {"play": Faults(0.1)})``.

    Args:
        graph: stays as it is.
        faults: by name of the node.

    Raises:
        KeyError: there is no such node.
        TypeError: the node is a source or a collecting sink.
        ValueError: the node is a repeat or a group, which hold no stage.
    """
    nodes = graph.spec().nodes
    for name, what in faults.items():
        stage = nodes[name].stage if name in nodes else None
        graph = graph.replace(name, stage if stage is None else what.wrap(stage))
    return graph
