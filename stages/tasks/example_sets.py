"""A source of demonstrations: draws sets of a fixed size for ever, epoch after epoch. One integer says where it is."""

from collections.abc import Sequence

import numpy as np

from stages.records import Example
from stages.tasks.source import epoch_order


class ExampleSets:
    """A cursor over demonstrations.

    Args:
        examples: the demonstrations.
        size: examples in a set. A set may reach from one epoch into the next.
        seed: of the order.

    Raises:
        ValueError: there are no examples, or ``size`` is below 1.
    """

    def __init__(self, examples: Sequence[Example], size: int, seed: int) -> None:
        if not examples or size < 1:
            raise ValueError(
                f"expected at least one example and a size of at least 1; got {len(examples)} examples and size {size}, "
                "in ExampleSets; check the file of demonstrations"
            )
        self._examples, self._size, self._seed = examples, size, seed
        self._drawn = 0
        self._order: tuple[int, np.ndarray] | None = None

    def draw(self) -> tuple[Example, ...]:
        """The next set."""
        first = self._drawn * self._size
        self._drawn += 1
        return tuple(self._at(first + offset) for offset in range(self._size))

    def state(self) -> int:
        """Number of sets drawn."""
        return self._drawn

    def restore(self, state: int) -> None:
        """Go on after this many sets."""
        self._drawn = state

    def _at(self, place: int) -> Example:
        epoch, index = divmod(place, len(self._examples))
        if self._order is None or self._order[0] != epoch:
            self._order = (epoch, epoch_order(len(self._examples), self._seed, epoch))
        return self._examples[int(self._order[1][index])]
