"""Places in the saving of a run at which a test may have the process die. In a run nobody listens, and nothing happens."""

from collections.abc import Callable

listeners: list[Callable[[str], None]] = []
"""Called with the name of each point that is reached."""


def reach(point: str) -> None:
    """The code is at a point, such as ``commit.rename``."""
    for listener in listeners:
        listener(point)
