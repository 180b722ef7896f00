"""What may declare a state, so that a run can go on where a stopped one was: sources, stages, and whatever stands beside them.

One that has no state needs nothing here. One that has some and does not declare it cannot be seen from outside; a source always
has one, so a source that declares none is refused.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from .._errors import NotResumable


@runtime_checkable
class Resumable(Protocol):
    """A source, a stage, a watcher or the owner of a cell's ``load`` that declares its state.

    The state is plain values (numbers, text, tuples, structs of them) of the type that ``state`` is annotated with; whatever
    is larger is for ``Saves``. That of a source is all that its next draw depends on, whatever was drawn before; what was
    fetched ahead and not drawn is no part of it. That of a stage is what committed items left in it: an attempt under way, or
    one whose result waits for room, is made again, so a stage must add up by item (``context.path``), as for any second
    attempt. That of a sink which takes steps is what it was when the step under way began: the items of that step come again.
    """

    def state(self) -> Any:
        """Give the state. Called on the loop between two transitions, for a source on a thread there after each draw.

        It is written at once, so it need not be a copy, and must not take long.

        Raises:
            TypeError: it depends on something that does not declare its own.
        """
        ...

    def restore(self, state: Any) -> None:
        """Go where a state says, after it was opened and before the first item.

        Raises:
            ValueError: there is no such place, as in another set.
        """
        ...


@runtime_checkable
class Saves(Protocol):
    """What is too large for the state, such as the arrays of a trainer. Beside ``Resumable``."""

    def save(self, folder: Path) -> Callable[[], None]:
        """Take what is to be written, so that it may change afterwards, and give what writes it.

        Of a sink that takes steps, called where its code runs, right after a step; of anything else on the loop, where it must
        not take long.

        Args:
            folder: where it goes; not there yet.

        Returns:
            What writes it and returns when it is on the disk; called on a thread. It may raise ``OSError``.

        Raises:
            OSError: what was to be written cannot be.
        """
        ...

    def load(self, folder: Path) -> None:
        """Take it over again, before ``restore``. Called on a thread.

        Raises:
            ValueError: what lies there is of something else.
        """
        ...


@runtime_checkable
class Digested(Protocol):
    """A sink that takes steps and can say in a few characters what it is like, so that a replay of a run can be compared."""

    def digest(self) -> str:
        """Give what stands for all bits that a step may change. Called where its code runs, right after a step.

        Only where a run records all that it does, so it may take as long as a small part of a step.
        """
        ...


def check_resumable(source: Any, where: str) -> None:
    """Refuse a source that does not say where it is.

    A sequence needs no state of its own: its next item is that with the number of those drawn, which the engine counts.

    Args:
        source: what a graph draws from.
        where: its place, such as ``grpo.prompts``, for the error.

    Raises:
        NotResumable: it has no ``state`` and ``restore``, and is no sequence; or its ``state`` says that it has none.
    """
    if is_sequence(source):
        return
    if isinstance(source, Resumable):
        try:
            source.state()
        except TypeError as error:
            raise _undeclared(where, str(error)) from error
        return
    missing = [f"{name}()" for name in ("state", "restore") if not hasattr(source, name)]
    raise _undeclared(where, f"{type(source).__name__} without {' and '.join(missing)}")


def is_sequence(source: Any) -> bool:
    """Whether a source is a plain sequence."""
    return issubclass(type(source), Sequence) and not hasattr(source, "draw")


def _undeclared(where: str, got: str) -> NotResumable:
    return NotResumable(
        where,
        "a source that declares its state, with state() and restore(state), or a sequence",
        got,
        "give it both, draw from a sequence, or from what makes the iterable anew (stages.tasks.iterated.Replayed)",
    )
