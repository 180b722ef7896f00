"""The shapes of code that a user hands to a graph: sources, stages, collectors, and the settings of a stage."""

from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from typing import Any, Protocol, TypeAlias, TypedDict, TypeVar, runtime_checkable

from ._context import Context
from ._handles import Cell
from ._item import Failed, Filtered, Many
from ._limits import Freshness, Placement
from ._policy import Budget, OnError
from ._spec import Order

In = TypeVar("In")
Out = TypeVar("Out")
In_contra = TypeVar("In_contra", contravariant=True)
Out_co = TypeVar("Out_co", covariant=True)
Result: TypeAlias = Out | Many[Out] | Failed[Out] | Filtered
ManyWork: TypeAlias = Callable[[In, Context], Awaitable[Many[Out]]] | Callable[[In, Context], Many[Out]]
AsyncWork: TypeAlias = Callable[[In, Context], Awaitable[Result[Out]]]
SyncWork: TypeAlias = Callable[[In, Context], Result[Out]]


class Settings(TypedDict, total=False):
    """Settings of a stage; ``Graph.stage`` explains them."""

    workers: int
    order: Order
    key: Callable[[Any], Hashable] | None
    needs: Mapping[str, int] | None
    reads: Cell[Any] | None
    deadline_s: float | None
    on_error: OnError
    budget: Budget | None
    placement: Placement


class Source(Protocol[Out_co]):
    """Where items come from. ``draw`` gives the next one and raises ``StopIteration`` at the end.

    Where a source has a length, that is the number of items it draws.
    """

    def draw(self) -> Out_co:
        """Give the next item."""
        ...


class Collector(Protocol[In_contra, Out_co]):
    """A sink that takes a fixed number of items a step. Both methods run one at a time, in step order."""

    def add(self, value: In_contra, context: Context, /) -> Awaitable[None] | None:
        """Take one item of the step under way."""
        ...

    def finish(self, context: Context, /) -> Out_co:
        """Complete the step. The result, awaited where it is awaitable, goes to the feedback edge.

        Cancelled while it waits for something, it has changed nothing: the items of the step come again.
        """
        ...


@runtime_checkable
class Waiting(Protocol):
    """The object of a cell's ``load``, where a load may wait for something of its own: it tells for what."""

    @property
    def waiting(self) -> str | None:
        """What the load under way waits for, in few words; ``None`` where it works."""
        ...


@runtime_checkable
class Holding(Protocol):
    """The object of a cell's ``load``, where it may hold an older version in force than the newest, across a resume too."""

    @property
    def held(self) -> tuple[int, Any] | None:
        """The version that a run which goes on begins with, and its value; ``None`` for the newest."""
        ...


@runtime_checkable
class Advising(Protocol):
    """What any of them may have beside its work: a say in the warnings of ``build``, which knows nothing of what it does."""

    def advice(self, freshness: Freshness | None, /) -> Iterable[str]:
        """Give a line for each thing that is allowed and probably not meant: what, why, what to set.

        Args:
            freshness: of its feedback edge; ``None`` for a node without one.
        """
        ...
