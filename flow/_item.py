"""Items: what stages return, what a barrier hands on, and what the engine keeps about each value that travels."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class Many(Generic[T_co]):
    """Returned by a stage that gives any number of outputs for one input, none included."""

    values: Sequence[T_co]


@dataclass(frozen=True)
class Filtered:
    """Returned by a stage that drops the item on purpose. The reason is counted; a group's ticket goes back.

    Attributes:
        reason: one of few words: outcomes are counted by it.
        detail: one line for people, of why and what to do; told where the stage filters so much that the run ends.
    """

    reason: str
    detail: str = field(default="", repr=False)


@dataclass(frozen=True)
class Failed(Generic[T_co]):
    """Returned by a stage whose item failed but is still worth handing on. A barrier counts the member as failed.

    Attributes:
        value: what goes on, marked as failed.
        reason: one of few words: outcomes are counted by it.
        detail: one line for people.
    """

    value: T_co
    reason: str
    detail: str = ""


@dataclass(frozen=True)
class Gathered(Generic[T_co]):
    """The members of one group, as a barrier emits them.

    Attributes:
        birth: birth number of the group.
        members: values of the members that succeeded, in member order.
        failures: reason of each member that is missing or failed, in member order.
        closed: why the group was closed.
        failed: values of the members that failed and had one (``Failed``, or made by ``Emit``), in member order.
    """

    birth: int
    members: tuple[T_co, ...]
    failures: tuple[str, ...]
    closed: Literal["full", "shrunk"]
    failed: tuple[T_co, ...] = ()
