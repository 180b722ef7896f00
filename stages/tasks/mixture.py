"""A source that interleaves others by weight. Which one is next is a pure function of weights, seed and the draws before.

The order is of low discrepancy: at every point of a run each source was drawn its exact share, to within one draw. Words of a
random generator would give the shares on average only, and a step of 16 groups would hold now none and now three of a source
that has a tenth; the same small source could stay away for a hundred draws. What order gives up is chance *between* sources;
within one, tasks are shuffled as they are without a mixture.

Source: the order is a Pfair schedule (Baruah, Cohen, Plaxton and Varvel, 1996, "Proportionate progress"): draw j of a source
with share w may come from draw floor(j / w) of all on and must come before ceil((j + 1) / w); of those that may, the one that
must come first is next. We break ties by an order made of the seed.
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal, Protocol, get_type_hints, runtime_checkable

import msgspec

from stages.records import Task
from stages.tasks.source import epoch_order


class TaskSource(Protocol):
    """Draws tasks. To be resumed it is a ``StatefulSource`` too."""

    def draw(self) -> Task:
        """The next task.

        Raises:
            StopIteration: there are no more.
        """
        ...


@runtime_checkable
class StatefulSource(Protocol):
    """Knows where it is."""

    def state(self) -> Any:
        """Where the next draw is, a plain value."""
        ...

    def restore(self, state: Any) -> None:
        """Go where a state says.

        Raises:
            ValueError: there is no such place.
        """
        ...


class MixtureState(msgspec.Struct, frozen=True):
    """Where a mixture is.

    Attributes:
        names: of the sources, in order.
        counts: draws of each source, in the order of names, since the last of them was over; what the order follows from.
        over: sources that are over.
        parts: state of each source.
    """

    names: tuple[str, ...]
    counts: tuple[int, ...]
    over: tuple[bool, ...]
    parts: tuple[Any, ...]


class Mixture:
    """Named sources with weights. ``Task.source`` becomes the name.

    Args:
        parts: name -> (source, weight). Weights are relative. Each says itself when it is over, as ``Tasks(epochs=)`` does.
        seed: of the order among sources that are due at once; changes nothing else.
        exhausted: what happens when it is the turn of a source that is over. ``stop``: the mixture is over, so that the shares
            hold to the end. ``go_on``: the others share what it had, in proportion, until all are over.

    Raises:
        ValueError: no sources, or a weight that is not a finite number above 0.
    """

    def __init__(
        self,
        parts: Mapping[str, tuple[TaskSource, float]],
        seed: int = 0,
        exhausted: Literal["stop", "go_on"] = "stop",
    ) -> None:
        wrong = {name: weight for name, (_, weight) in parts.items() if not (math.isfinite(weight) and weight > 0)}
        if not parts or wrong:
            raise ValueError(
                f"expected at least one source, with finite weights above 0; got {wrong or 'none'}, in Mixture(parts); "
                "leave out a source that is not to be drawn"
            )
        self._names = tuple(sorted(parts))  # so that the order they were written in changes nothing
        self._sources = tuple(parts[name][0] for name in self._names)
        # As written: 0.1 is a tenth. Integers from here on, so that no rounding can add up.
        shares = [Fraction(str(parts[name][1])) for name in self._names]
        unit = math.lcm(*(share.denominator for share in shares))
        self._weights = tuple(int(share * unit) for share in shares)
        self._ranks = epoch_order(len(self._names), seed, 0).argsort().tolist()
        self._stops = exhausted == "stop"
        self._counts = [0] * len(self._names)
        self._over = [False] * len(self._names)

    def draw(self) -> Task:
        """The next task, of the source whose turn it is.

        Raises:
            StopIteration: the mixture is over; see ``exhausted``.
        """
        while not (all(self._over) or (self._stops and any(self._over))):
            chosen = next_part(self._weights, self._counts, self._over, self._ranks)
            try:
                task = self._sources[chosen].draw()
            except StopIteration:
                self._over[chosen] = True
                self._counts = [0] * len(self._counts)  # the shares of the others are counted from here
                continue
            self._counts[chosen] += 1
            return msgspec.structs.replace(task, source=self._names[chosen])
        raise StopIteration

    def state(self) -> MixtureState:
        """Where the next draw is.

        Raises:
            TypeError: a source declares no state.
        """
        parts = stateful(self._names, self._sources)
        return MixtureState(self._names, tuple(self._counts), tuple(self._over), tuple(part.state() for part in parts))

    def restore(self, state: MixtureState) -> None:
        """Go where ``state`` says.

        Raises:
            ValueError: it is of a mixture of other sources, or one of them has no such place.
        """
        restore_parts(state.names, state.parts, self._names, self._sources, "Mixture.restore")
        self._counts, self._over = list(state.counts), list(state.over)


def next_part(weights: tuple[int, ...], counts: list[int], over: list[bool], ranks: list[int]) -> int:
    """Index of the source that is drawn next.

    Args:
        weights: of each source, above 0.
        counts: its draws so far.
        over: whether it is left out. Not all may be.
        ranks: decides between those that are due at once.
    """
    left = [index for index, ended in enumerate(over) if not ended]
    total, drawn = sum(weights[index] for index in left), sum(counts[index] for index in left)
    due = [
        (-(-(counts[index] + 1) * total // weights[index]), ranks[index], index)
        for index in left
        if counts[index] * total // weights[index] <= drawn
    ]
    return min(due)[2]


def restore_parts(
    saved: Sequence[str], parts: Sequence[Any], names: Sequence[str], sources: Sequence[TaskSource], where: str
) -> None:
    """Let sources that others draw from go where their states say, each of the type that its ``state`` is annotated with.

    Args:
        saved: names of the sources that the states are of.
        parts: the states, plain values or as they were given.
        names: of the sources.
        sources: go on.
        where: the method that was asked, for the error.

    Raises:
        ValueError: they are other sources, or one of them has no such place.
    """
    if tuple(saved) != tuple(names):
        raise ValueError(
            f"expected the sources {', '.join(saved)}, whose places these are; got {', '.join(names)}, in {where}; resume with "
            "the sources the run was started with"
        )
    for name, source, part in zip(names, stateful(names, sources), parts, strict=True):
        hint: Any = get_type_hints(source.state).get("return", Any)
        try:
            source.restore(msgspec.convert(part, hint))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error


def stateful(names: Sequence[str], sources: Sequence[TaskSource]) -> Sequence[StatefulSource]:
    """Sources that others draw from, all of which declare a state.

    Raises:
        TypeError: one declares none.
    """
    for name, source in zip(names, sources, strict=True):
        if not isinstance(source, StatefulSource):
            raise TypeError(f"a part of it, {name!r}, a {type(source).__name__} without state() and restore()")
    return [source for source in sources if isinstance(source, StatefulSource)]
