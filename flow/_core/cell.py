"""A versioned cell: the newest value, and which version readers may count on."""

from typing import Any

from .item import Wake


class Cell:
    """Newest-value cell of one feedback edge.

    A value is first *published*, and is *in force* once whoever loads it has loaded it. Readers see the one in force.
    Versions grow by one with each publication; a publication overtaken by a newer one before it was loaded is skipped,
    and counted.

    Attributes:
        name: name in the graph.
        value: the value in force.
        version: its version.
        published: newest version published.
        skipped: versions that were never in force.
        ended: whether its writer has come to its end.
        listeners: called when a version is in force, and when it will be the last.
    """

    __slots__ = ("_pending", "ended", "listeners", "name", "published", "skipped", "value", "version")

    def __init__(self, name: str) -> None:
        self.name = name
        self.value: Any = None
        self.version = 0
        self.published = 0
        self.skipped = 0
        self.ended = False
        self.listeners: list[Wake] = []
        self._pending: tuple[int, Any] | None = None

    @property
    def final(self) -> bool:
        """Whether no other version will be in force."""
        return self.ended and self.version == self.published

    def start(self, value: Any, version: int = 0) -> None:
        """Put the initial value in force."""
        self.value, self.version, self.published = value, version, version

    def publish(self, value: Any) -> int:
        """Hand in the next value; it is not in force yet.

        Returns:
            Its version.
        """
        self.published += 1
        if self._pending is not None:
            self.skipped += 1
        self._pending = (self.published, value)
        return self.published

    def pending(self) -> tuple[int, Any] | None:
        """Take the newest published value that is not yet in force, to load it."""
        pending, self._pending = self._pending, None
        return pending

    def enforce(self, version: int, value: Any) -> None:
        """A value was loaded. Versions never go back."""
        assert version > self.version, f"cell {self.name}: {version} after {self.version}"
        self.value, self.version = value, version
        self._notify()

    def end(self) -> None:
        """Its writer will publish no more."""
        self.ended = True
        self._notify()

    def _notify(self) -> None:
        for wake in self.listeners:
            wake()
