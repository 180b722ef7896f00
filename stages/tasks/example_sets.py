"""A source of demonstrations: draws sets of a fixed size for ever, epoch after epoch. One integer says where it is."""

from collections.abc import Sequence

from stages.records import Example
from stages.tasks.identity import SetId, check_same_set
from stages.tasks.source import Endless, EndlessState


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
        self._examples, self._size, self._drawn = Endless(examples, seed), size, 0

    def draw(self) -> tuple[Example, ...]:
        """The next set."""
        first = self._drawn * self._size
        self._drawn += 1
        return tuple(self._examples[first + offset] for offset in range(self._size))

    def state(self) -> EndlessState:
        """Number of sets drawn."""
        return EndlessState(self._drawn, self._identity)

    def restore(self, state: EndlessState) -> None:
        """Go on after this many sets.

        Raises:
            ValueError: it is a place in another set, or in another order of it.
        """
        check_same_set(state.of, self._identity, "ExampleSets.restore")
        self._drawn = state.drawn

    @property
    def _identity(self) -> SetId:
        whole = self._examples.identity
        return SetId(whole.size, whole.fingerprint, f"{whole.order}, {self._size} at a time")
