"""A source of tasks that are made when they are drawn, by a pure function of (seed, index). One integer says where it is."""

from collections.abc import Callable

import msgspec

from stages.records import Task
from stages.tasks.identity import fingerprint_of


class GeneratedState(msgspec.Struct, frozen=True):
    """Where ``Generated`` is.

    Attributes:
        index: of the next task.
        seed: handed to what makes tasks.
        first: fingerprint of the first of them, which tells one maker from another as far as one task can; empty before it.
    """

    index: int
    seed: int
    first: str


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
        self._first: list[Task] = []

    def draw(self) -> Task:
        """The next task. It counts as drawn once it is made: a function that raises is asked for the same index again.

        Raises:
            StopIteration: all are drawn.
        """
        if self._size is not None and self._index >= self._size:
            raise StopIteration
        task = self._make(self._seed, self._index)
        self._first = self._first or [task]
        self._index += 1
        return task

    def state(self) -> GeneratedState:
        """Index of the next task.

        Raises:
            TypeError: tasks have something in ``extra`` that would not come back from a commit as it is.
        """
        return GeneratedState(self._index, self._seed, fingerprint_of(self._first) if self._first else "")

    def restore(self, state: GeneratedState) -> None:
        """Go on at an index.

        Raises:
            ValueError: the tasks are others, or there is no such index.
        """
        first = [self._make(self._seed, 0)] if state.index else []
        if state.seed != self._seed or (first and fingerprint_of(first) != state.first):
            raise ValueError(
                f"expected the tasks of seed {state.seed} of which {state.index} were drawn; got those of seed {self._seed}, "
                f"{'the first of which is another, ' if state.seed == self._seed else ''}in Generated.restore; resume with "
                "what made them"
            )
        if self._size is not None and state.index > self._size:
            raise ValueError(
                f"expected at least the {state.index} tasks that were drawn; got size={self._size}, in Generated.restore; "
                "resume with the size the run was started with, or with more"
            )
        self._index, self._first = state.index, first
