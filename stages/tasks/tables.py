"""Tasks out of a table that is not held in memory: rows are read when they are drawn, and checked once at the start.

A stretch is what the file's format reads at once, a row group or a record batch. The last few are kept, so a pass in order, or
with ``Tasks(set, seed, stretches=stretches_of(set))``, reads each of them once. What file it is, ``parquet.py`` and
``saved_dataset.py`` know.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Protocol, overload

from stages.records import Task
from stages.tasks.columns import Columns
from stages.tasks.rows import RowError, shown_faults

KEPT = 4
"""Stretches kept in memory."""
SLICE = 1024
"""Rows that are Python objects at a time, while a set is checked."""


class Rows(Protocol):
    """A stretch, as pyarrow's tables and record batches are."""

    @property
    def num_rows(self) -> int:
        """Number of its rows."""
        ...

    def slice(self, offset: int, length: int) -> "Rows":
        """Some of its rows, not copied."""
        ...

    def to_pylist(self) -> list[dict[str, Any]]:
        """Its rows as Python values."""
        ...


class TableTasks(Sequence[Task]):
    """The tasks of a table, in its order.

    Args:
        path: of the table, for errors.
        name: of the set, ``Task.source`` where no column says it.
        stretches: number of rows of each stretch.
        read: gives a stretch by its number, with the columns that ``columns`` reads.
        columns: which column is which field.
        check: says in one line what is wrong with a task; ``None`` for nothing. Runs over every row here.
        min_rows: fewer are refused.
        at_random: whether a row costs the same wherever it lies, as in a file that is mapped into memory.

    Attributes:
        stretches: number of rows of each, for ``Tasks``, whose epochs then read each once; ``None`` where rows may as well be
            drawn at random.

    Raises:
        RowError: rows are broken or too few; tells every broken row (the first ten).
    """

    def __init__(
        self,
        path: object,
        name: str,
        stretches: Sequence[int],
        read: Callable[[int], Rows],
        columns: Columns,
        *,
        check: Callable[[Task], str | None] | None = None,
        min_rows: int = 1,
        at_random: bool = False,
    ) -> None:
        self._name, self._read, self._columns = name, read, columns
        self.stretches = None if at_random else tuple(stretches)
        self._firsts = [0, *accumulate(stretches)]
        self._kept: OrderedDict[int, Rows] = OrderedDict()
        faults = list(self._faults(check))
        if faults:
            what = f"expected rows with {_told(columns)}; got {len(faults)} that are not as they should be, in {path}"
            raise RowError(shown_faults(what, faults))
        if len(self) < min_rows:
            raise RowError(f"expected at least {min_rows} rows; got {len(self)}, in {path}; add rows or name another file")

    def __len__(self) -> int:
        return self._firsts[-1]

    def __iter__(self) -> Iterator[Task]:
        for number, row in self._rows():
            yield self._columns.task(row, number, self._name)

    @overload
    def __getitem__(self, index: int) -> Task: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Task]: ...

    def __getitem__(self, index: int | slice) -> Task | Sequence[Task]:
        if isinstance(index, slice):
            return tuple(self[number] for number in range(*index.indices(len(self))))
        number = range(len(self))[index]
        stretch = bisect_right(self._firsts, number) - 1
        (row,) = self._stretch(stretch).slice(number - self._firsts[stretch], 1).to_pylist()
        return self._columns.task(row, number, self._name)

    def _stretch(self, number: int) -> Rows:
        rows = self._kept.pop(number, None)
        if rows is None:
            rows = self._read(number)
            if len(self._kept) >= KEPT:
                self._kept.popitem(last=False)
        self._kept[number] = rows
        return rows

    def _rows(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """All rows with their numbers, a few at a time."""
        for stretch, first in enumerate(self._firsts[:-1]):
            rows = self._stretch(stretch)
            for offset in range(0, rows.num_rows, SLICE):
                for place, row in enumerate(rows.slice(offset, SLICE).to_pylist()):
                    yield first + offset + place, row

    def _faults(self, check: Callable[[Task], str | None] | None) -> Iterator[str]:
        first_row: dict[str, int] = {}
        for number, row in self._rows():
            try:
                task = self._columns.task(row, number, self._name)
                earlier = first_row.setdefault(task.id, number)
                if earlier != number:
                    raise ValueError(f"id: expected a name used once, got {task.id!r}, as in row {earlier + 1}")
                if check is not None and (problem := check(task)):
                    raise ValueError(problem)
            except ValueError as error:
                yield f"row {number + 1}: {error}; got {str(row)[:120]}"


def stretches_of(tasks: Sequence[Task]) -> Sequence[int] | None:
    """What ``Tasks`` should know of how a set is read; ``None`` for a set in memory."""
    return tasks.stretches if isinstance(tasks, TableTasks) else None


def _told(columns: Columns) -> str:
    return ", ".join(f"{field} in column {column}" for field, column in columns.named.items())
