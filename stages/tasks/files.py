"""Tasks out of a file or a folder, by what it is: JSONL, Parquet, or a Hugging Face data set on disk."""

from collections.abc import Callable, Sequence
from pathlib import Path

from stages.records import Task
from stages.tasks.columns import Columns
from stages.tasks.jsonl import JsonlTasks
from stages.tasks.parquet import parquet_tasks
from stages.tasks.saved_dataset import dataset_tasks


def read_tasks(
    path: str | Path, *, columns: Columns | None = None, check: Callable[[Task], str | None] | None = None, min_rows: int = 1
) -> Sequence[Task]:
    """The tasks of a file ending in ``.parquet``, of a folder that ``save_to_disk`` wrote, or of any other file as JSONL.

    Args:
        path: the file or folder. Of a data set with splits, the folder of one of them.
        columns: which column is which field; ``None`` takes ``id``, ``prompt`` and ``answer``. JSONL has names of its own.
        check: says in one line what is wrong with a task; ``None`` for nothing.
        min_rows: fewer are refused.

    Raises:
        MissingPackageError: pyarrow is not installed, and it is no JSONL file.
        RowError: rows are broken or too few, or it is not what its name says.
        OSError: there is no such file, or it cannot be read.
    """
    if Path(path).is_dir():
        return dataset_tasks(path, columns=columns, check=check, min_rows=min_rows)
    if Path(path).suffix == ".parquet":
        return parquet_tasks(path, columns=columns, check=check, min_rows=min_rows)
    return JsonlTasks(path, check=check, min_rows=min_rows)
