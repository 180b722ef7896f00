"""Any Python iterable as a source. What it can promise depends on what the iterable can: there are three of them.

``Iterated`` runs and cannot be resumed, since nobody can say where a plain iterator is; ``Replayed`` makes the iterable anew
and passes over what was drawn; ``Stateful`` is for an iterable that knows its place itself. A sequence needs none of them:
``Tasks`` draws from one in an order of its own.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Generic, Protocol, TypeVar

Value = TypeVar("Value")
Value_co = TypeVar("Value_co", covariant=True)
Place = TypeVar("Place")


class Iterated(Generic[Value]):
    """Draws from an iterable once, from its start to its end. It declares no state: a run over it is refused for resume.

    Args:
        values: a generator, an open file, a stream.
    """

    def __init__(self, values: Iterable[Value]) -> None:
        self._values = iter(values)

    def draw(self) -> Value:
        """The next value.

        Raises:
            StopIteration: there are no more.
        """
        return next(self._values)


class Replayed(Generic[Value]):
    """Draws from an iterable that can be made again, and gives the same values then. Its state is how many were drawn.

    Restoring passes over that many values one by one: cheap for a file, not for values that take long to make. Those are for
    ``Generated``, which begins anywhere.

    Args:
        make: makes the iterable from its start; must give the same values each time.
    """

    def __init__(self, make: Callable[[], Iterable[Value]]) -> None:
        self._make = make
        self._values = iter(make())
        self._drawn = 0

    def draw(self) -> Value:
        """The next value.

        Raises:
            StopIteration: there are no more.
        """
        value = next(self._values)
        self._drawn += 1
        return value

    def state(self) -> int:
        """Values drawn."""
        return self._drawn

    def restore(self, state: int) -> None:
        """Begin again and pass over this many values.

        Raises:
            ValueError: there are fewer.
        """
        values = iter(self._make())
        passed = sum(1 for _ in islice(values, max(0, state)))
        if passed != state:
            raise ValueError(
                f"expected {state} values to pass over; got {passed}, in Replayed.restore; "
                "resume with the iterable the run was started with"
            )
        self._values, self._drawn = values, state


class Placed(Protocol[Value_co, Place]):
    """An iterable that knows its place."""

    def __iter__(self) -> Iterator[Value_co]:
        """Go on from the place where it is."""
        ...

    def state(self) -> Place:
        """Where the next value is, a plain value."""
        ...

    def restore(self, state: Place) -> None:
        """Go where a state says."""
        ...


class Stateful(Generic[Value, Place]):
    """Draws from an iterable that knows its place. Nothing is fetched ahead, so that its place is that of the next draw.

    Args:
        values: has ``state`` and ``restore`` beside ``__iter__``; iterated again after each ``restore``.
    """

    def __init__(self, values: Placed[Value, Place]) -> None:
        self._source = values
        self._values: Iterator[Value] | None = None

    def draw(self) -> Value:
        """The next value.

        Raises:
            StopIteration: there are no more.
        """
        if self._values is None:
            self._values = iter(self._source)
        return next(self._values)

    def state(self) -> Place:
        """That of the iterable."""
        return self._source.state()

    def restore(self, state: Place) -> None:
        """Restore the iterable."""
        self._source.restore(state)
        self._values = None
