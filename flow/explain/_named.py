"""Slices of one name in one place, as columns: of these it is asked how long they took, not who waited for whom."""

from collections.abc import Callable
from dataclasses import dataclass, field

from ..trace import Argument

_MOST_VALUES = 64
"""Values of an argument up to which slices are told apart by it: one with more of them names items."""
_TRIED = 100
"""Slices without such an argument after which no more are looked at: to read details costs more than all else."""
_IDENTITIES = {"item", "call", "id", "session", "for"}
"""Arguments that name one thing each."""


@dataclass(eq=False)
class Named:
    """Slices of one name in one place.

    Attributes:
        where: node or track.
        name: theirs.
        starts: ns.
        ends: ns.
        lengths_by: lengths by argument and value, of arguments that tell few kinds apart; ``None`` for one that names items.
    """

    where: str
    name: str
    starts: list[int] = field(default_factory=list[int])
    ends: list[int] = field(default_factory=list[int])
    lengths_by: dict[str, dict[str, list[int]] | None] = field(default_factory=dict[str, dict[str, list[int]] | None])

    def add(self, start: int, end: int, args: Callable[[], dict[str, Argument]]) -> None:
        """One more. ``args`` gives its details."""
        self.starts.append(start)
        self.ends.append(end)
        if len(self.starts) > _TRIED and not self.lengths_by:
            return
        for key, value in args().items():
            if isinstance(value, str) and key not in _IDENTITIES:
                self._add_value(key, value, end - start)

    def _add_value(self, key: str, value: str, length: int) -> None:
        found = self.lengths_by.setdefault(key, {})
        if found is not None:
            found.setdefault(value, []).append(length)
            if len(found) > _MOST_VALUES:
                self.lengths_by[key] = None
