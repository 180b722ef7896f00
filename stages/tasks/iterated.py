"""Any Python iterable as a source. What it can promise depends on what the iterable can: there are three of them.

``Iterated`` runs and cannot be resumed, since nobody can say where a plain iterator is; ``Replayed`` makes the iterable anew
and passes over what was drawn; ``Stateful`` is for an iterable that knows its place itself. A sequence needs none of them:
``Tasks`` draws from one in an order of its own.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar, get_type_hints

import msgspec

from stages.arrays import ARRAYS
from stages.tasks.identity import fingerprint_of

Value = TypeVar("Value")
Value_co = TypeVar("Value_co", covariant=True)
Place = TypeVar("Place")
_ENCODE = msgspec.msgpack.Encoder(enc_hook=ARRAYS.write).encode


class ReplayedState(msgspec.Struct, frozen=True):
    """Where ``Replayed`` is.

    Attributes:
        drawn: values drawn.
        last: fingerprint of the last of them; empty before the first.
    """

    drawn: int
    last: str


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
        self._last: list[Value] = []

    def draw(self) -> Value:
        """The next value.

        Raises:
            StopIteration: there are no more.
        """
        value = next(self._values)
        self._drawn, self._last = self._drawn + 1, [value]
        return value

    def state(self) -> ReplayedState:
        """Values drawn.

        Raises:
            TypeError: a value cannot be saved as it is.
        """
        return ReplayedState(self._drawn, fingerprint_of(self._last) if self._last else "")

    def restore(self, state: ReplayedState) -> None:
        """Begin again and pass over this many values.

        Raises:
            ValueError: there are fewer, or the last of them is another.
        """
        values, passed, last = iter(self._make()), 0, list[Value]()
        for value in islice(values, state.drawn):
            passed, last = passed + 1, [value]
        if passed != state.drawn or (last and fingerprint_of(last) != state.last):
            got = f"{passed}" if passed != state.drawn else "others"
            raise ValueError(
                f"expected the {state.drawn} values that were drawn, to pass over; got {got}, in Replayed.restore; "
                "resume with the iterable the run was started with"
            )
        self._values, self._drawn, self._last = values, state.drawn, last


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

    def state(self) -> bytes:
        """That of the iterable, as bytes, whatever it is.

        Raises:
            TypeError: it cannot be written.
        """
        return _ENCODE(self._source.state())

    def restore(self, state: bytes) -> None:
        """Restore the iterable, with a state of the type that its own ``state`` is annotated with."""
        hint: Any = get_type_hints(self._source.state).get("return", Any)
        self._source.restore(msgspec.msgpack.decode(state, type=hint, ext_hook=ARRAYS.read_ext))
        self._values = None
