"""A source of the groups that a run trained, as it recorded them. What of its journal counts is said in ``flow/saving``."""

from collections.abc import Callable, Sequence

import msgspec

from flow.saving import RecordedStep, RecordedSteps
from stages.arrays import ARRAYS
from stages.records import Group

_GROUP = msgspec.msgpack.Decoder(Group, dec_hook=ARRAYS.read, ext_hook=ARRAYS.read_ext)


class RecordedGroups:
    """Gives the groups of recorded steps, in order.

    Args:
        recorded: of the run.
        steps: some of it.
        expect: told the birth and the lag of each group as it is drawn.
    """

    def __init__(
        self, recorded: RecordedSteps, steps: Sequence[RecordedStep], expect: Callable[[int, int | None], None]
    ) -> None:
        self._values, self._expect = recorded.values(steps), expect

    def draw(self) -> Group:
        """Give the next group.

        Raises:
            ValueError: it was written by another version.
        """
        item, value = next(self._values)
        self._expect(item.birth, item.lag)
        return _GROUP.decode(value)
