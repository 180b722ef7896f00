"""Tasks out of a JSONL file: ``{"id": ..., "prompt": ..., "answer": ..., "extra": {...}}`` a line.

All rows are read and checked when the object is made. In what order they are drawn is for ``source.py``.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import msgspec

from stages.records import Task
from stages.tasks.rows import read_rows


class TaskRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a task file; see ``Task`` for the fields."""

    id: str
    prompt: str
    answer: str | None = None
    source: str | None = None
    """``None`` takes the file's name."""
    extra: dict[str, Any] = {}
    difficulty: str | None = None


class JsonlTasks(Sequence[Task]):
    """The tasks of a file, in its order."""

    def __init__(self, path: str | Path, *, check: Callable[[Task], str | None] | None = None, min_rows: int = 1):
        """Read and check the file.

        Args:
            path: the file.
            check: says in one line what is wrong with a task, such as an unknown environment in ``extra``; ``None`` for
                nothing. Runs over every row here, so that no row fails when it is drawn.
            min_rows: fewer are refused.

        Raises:
            RowError: rows are broken or too few; all of them are told.
            FileNotFoundError: there is no such file.
        """

        def task_of(row: TaskRow) -> Task:
            if not row.prompt:
                raise ValueError("prompt: expected text, got none")
            source = Path(path).stem if row.source is None else row.source
            task = Task(row.id, row.prompt, row.answer, source, row.extra, row.difficulty)
            problem = check(task) if check else None
            if problem:
                raise ValueError(problem)
            return task

        self._tasks = read_rows(path, TaskRow, task_of, lambda task: task.id, min_rows=min_rows)

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks)

    @overload
    def __getitem__(self, index: int) -> Task: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Task]: ...

    def __getitem__(self, index: int | slice) -> Task | Sequence[Task]:
        return self._tasks[index]
