"""A source of tasks that are made when they are drawn, by a pure function of (seed, index). One integer says where it is."""

from collections.abc import Callable

from stages.records import Task


class Generated:
    """Draws the tasks with the indices 0, 1, 2, ...

    Args:
        make: (seed, index) -> the task; pure, so that it can begin anywhere. Two indices must not give one id.
        seed: handed to ``make``.
        size: tasks in all; ``None`` for ever.

    Raises:
        ValueError: ``size`` is below 1.
    """

    def __init__(self, make: Callable[[int, int], Task], seed: int, size: int | None = None) -> None:
        if size is not None and size < 1:
            raise ValueError(f"expected at least 1 task, or None for ever; got size={size}, in Generated; raise it")
        self._make, self._seed, self._size = make, seed, size
        self._index = 0

    def draw(self) -> Task:
        """The next task. It counts as drawn once it is made: a function that raises is asked for the same index again.

        Raises:
            StopIteration: all are drawn.
        """
        if self._size is not None and self._index >= self._size:
            raise StopIteration
        task = self._make(self._seed, self._index)
        self._index += 1
        return task

    def state(self) -> int:
        """Index of the next task."""
        return self._index

    def restore(self, state: int) -> None:
        """Go on at an index.

        Raises:
            ValueError: there is no such index.
        """
        if state < 0 or (self._size is not None and state > self._size):
            raise ValueError(
                f"expected an index from 0 to {self._size}; got {state}, in Generated.restore; "
                "resume with the size the run was started with"
            )
        self._index = state
