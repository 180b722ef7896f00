"""Whether a source can go on where a stopped run was: it declares its state, or is refused. It saves nothing itself."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from ._errors import NotResumable


@runtime_checkable
class Resumable(Protocol):
    """A source that declares its state. One that cannot has neither method: what is absent is refused, never guessed.

    The state is all that the next draw depends on: plain values (numbers, text, tuples, structs of them), whatever was drawn
    before. What was fetched ahead and not drawn is no part of it.
    """

    def state(self) -> Any:
        """Where the next draw is.

        Raises:
            TypeError: it draws from a source that does not declare its own.
        """
        ...

    def restore(self, state: Any) -> None:
        """Go where a state says: the next draw is the one that followed when it was taken.

        Raises:
            ValueError: there is no such place, as in another set.
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
    if issubclass(type(source), Sequence) and not hasattr(source, "draw"):
        return
    if isinstance(source, Resumable):
        try:
            source.state()
        except TypeError as error:
            raise NotResumable(where, str(error)) from error
        return
    missing = [f"{name}()" for name in ("state", "restore") if not hasattr(source, name)]
    raise NotResumable(where, f"{type(source).__name__} without {' and '.join(missing)}")
