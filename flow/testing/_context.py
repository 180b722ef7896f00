"""A context for calling a stage by hand."""

from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from .._context import Context, Desk, Versioned
from .._core.item import Item


def context(
    *,
    node: str = "node",
    path: tuple[int, ...] = (0,),
    birth: int = 0,
    member: int = 0,
    retry: int = 0,
    attempt: int = 0,
    version: int | None = None,
    lag: int | None = None,
    deadline_s: float | None = None,
    value: Any = None,
    report: Callable[[Mapping[str, Any]], None] = lambda row: None,
) -> Context:
    """Make a context as the engine would; permits are granted at once and spans go nowhere.

    Args:
        node: name of the node.
        path: identity of the item.
        birth: birth number.
        member: index in the group.
        retry: failures before.
        attempt: executions before.
        version: version of the cell that is read.
        lag: versions since dispatch.
        deadline_s: loop time of the deadline.
        value: what ``read`` gives.
        report: receives the rows of ``Context.report``.
    """

    @asynccontextmanager
    async def permit(needs: Mapping[str, int]) -> AsyncGenerator[None]:
        yield

    @contextmanager
    def span(name: str, args: Mapping[str, Any], flows: Sequence[int]) -> Generator[None]:
        yield

    desk = Desk(node, lambda: Versioned(value, version or 0), permit, span, report)
    return Context(desk, Item(None, path, birth, member, retry), attempt, version, lag, deadline_s)
