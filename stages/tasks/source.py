"""A source of tasks: draws from a fixed set, epoch after epoch, and knows where it is by two integers.

The order of an epoch is a pure function of (seed, epoch), so nothing but the cursor needs saving, and nothing is fetched ahead.
Where the tasks come from is for ``jsonl.py``, ``arithmetic.py`` and the like.
"""

import functools
from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec
import numpy as np

from stages.records import Task
from stages.tasks.identity import SetId, check_same_set, fingerprint_of

T = TypeVar("T")


class TasksState(msgspec.Struct, frozen=True):
    """Where ``Tasks`` is: the next task is that of ``index`` in the order of ``epoch``."""

    epoch: int
    index: int
    of: SetId


class EndlessState(msgspec.Struct, frozen=True):
    """Where a source over ``Endless`` is, after this many draws."""

    drawn: int
    of: SetId


class Tasks:
    """A cursor over a set of tasks."""

    def __init__(
        self,
        tasks: Sequence[Task],
        seed: int,
        shuffle: bool = True,
        epochs: int | None = None,
        min_tasks: int = 1,
        stretches: Sequence[int] | None = None,
    ):
        """Start before the first task of epoch 0.

        Args:
            tasks: the set.
            seed: of the order; changes nothing else.
            shuffle: False draws in the order given.
            epochs: passes over the set, ``None`` for ever.
            min_tasks: fewer are refused; a run that needs several in one step says so here.

            stretches: sizes of parts of the set that are read together, such as ``TableTasks.stretches``: an epoch then passes
                through one after another, both in an order of its own, so that each is read once. ``None`` for one of all.

        Raises:
            ValueError: there are too few tasks, ``epochs`` is below 1, or ``stretches`` do not add up to the set.
        """
        if len(tasks) < max(1, min_tasks):
            raise ValueError(
                f"expected at least {max(1, min_tasks)} tasks; got {len(tasks)}, in Tasks; "
                "check what filtered them, or ask for fewer per step"
            )
        if epochs is not None and epochs < 1:
            raise ValueError(f"expected at least 1 epoch, or None for ever; got {epochs}, in Tasks(epochs); raise it")
        if stretches is not None and sum(stretches) != len(tasks):
            raise ValueError(
                f"expected stretches that add up to {len(tasks)} tasks; got {sum(stretches)}, in Tasks(stretches); "
                "take those of the set itself"
            )
        self._tasks = tasks
        self._stretches = stretches
        self._seed = seed
        self._shuffle = shuffle
        self._epochs = epochs
        self._epoch = 0
        self._index = 0
        self._order: tuple[int, np.ndarray] | None = None

    @functools.cached_property
    def identity(self) -> SetId:
        """What a cursor is good for: this set, in this order.

        Raises:
            TypeError: a task has something in ``extra`` that would not come back from a commit as it is.
        """
        stretched = "" if self._stretches is None else f", {len(self._stretches)} parts one after another"
        order = f"by seed {self._seed}{stretched}" if self._shuffle else "as it is"
        return SetId(len(self._tasks), fingerprint_of(self._tasks), order)

    def draw(self) -> Task:
        """The next task.

        Raises:
            StopIteration: every epoch is over.
        """
        if self._epochs is not None and self._epoch >= self._epochs:
            raise StopIteration
        task = self._tasks[int(self._order_of(self._epoch)[self._index])]
        self._index += 1
        if self._index == len(self._tasks):
            self._epoch, self._index = self._epoch + 1, 0
        return task

    def state(self) -> TasksState:
        """Where the next draw is.

        Raises:
            TypeError: see ``identity``.
        """
        return TasksState(self._epoch, self._index, self.identity)

    def restore(self, state: TasksState) -> None:
        """Go where ``state`` says: the next draw is the one that followed when it was taken.

        Raises:
            ValueError: it is a place in another set, or in another order of it.
        """
        check_same_set(state.of, self.identity, "Tasks.restore")
        self._epoch, self._index = state.epoch, state.index

    def _order_of(self, epoch: int) -> np.ndarray:
        if self._order is None or self._order[0] != epoch:
            self._order = (epoch, self._new_order(epoch))
        return self._order[1]

    def _new_order(self, epoch: int) -> np.ndarray:
        if self._stretches is None or not self._shuffle:
            return epoch_order(len(self._tasks), self._seed, epoch, shuffle=self._shuffle)
        return stretched_order(self._stretches, self._seed, epoch)


class Endless(Generic[T]):
    """A set read epoch after epoch, each in an order of its own: ``endless[place]`` is a pure function of seed and place.

    Args:
        items: the set, at least one.
        seed: of the orders.
    """

    def __init__(self, items: Sequence[T], seed: int) -> None:
        self._items, self._seed = items, seed
        self._order: tuple[int, np.ndarray] | None = None

    @functools.cached_property
    def identity(self) -> SetId:
        """What a place is good for: this set, in this order."""
        return SetId(len(self._items), fingerprint_of(self._items), f"by seed {self._seed}")

    def __getitem__(self, place: int) -> T:
        epoch, index = divmod(place, len(self._items))
        if self._order is None or self._order[0] != epoch:
            self._order = (epoch, epoch_order(len(self._items), self._seed, epoch))
        return self._items[int(self._order[1][index])]


def epoch_order(num_tasks: int, seed: int, epoch: int, *, shuffle: bool = True) -> np.ndarray:
    """Indices of the tasks in the order of one epoch, int64 [num_tasks]. Pure.

    Sorted by raw words of PCG64, the one part of NumPy's generators whose stream is promised never to change.
    """
    if not shuffle:
        return np.arange(num_tasks)
    return np.argsort(np.random.PCG64([seed, epoch]).random_raw(num_tasks), kind="stable")


def stretched_order(stretches: Sequence[int], seed: int, epoch: int) -> np.ndarray:
    """The same where each stretch is passed through before the next: shuffled stretches, each shuffled, int64 [sum]. Pure."""
    sizes = np.asarray(stretches)
    words = np.random.PCG64([seed, epoch]).random_raw(len(sizes) + int(sizes.sum()))
    place = np.argsort(np.argsort(words[: len(sizes)], kind="stable"), kind="stable")
    return np.lexsort((words[len(sizes) :], np.repeat(place, sizes)))
