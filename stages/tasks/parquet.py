"""Tasks out of a Parquet file, read one row group at a time."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from stages.packages import optional_package
from stages.records import Task
from stages.tasks.columns import Columns
from stages.tasks.rows import RowError
from stages.tasks.tables import TableTasks


def parquet_tasks(
    path: str | Path,
    *,
    columns: Columns | None = None,
    check: Callable[[Task], str | None] | None = None,
    min_rows: int = 1,
) -> TableTasks:
    """The tasks of a file. Every row is read once here and checked; later, row groups are read when they are drawn from.

    Args:
        path: the file. Its name is the name of the set.
        columns: which column is which field; ``None`` takes the columns ``id``, ``prompt`` and ``answer``.
        check: says in one line what is wrong with a task; ``None`` for nothing.
        min_rows: fewer are refused.

    Raises:
        MissingPackageError: pyarrow is not installed.
        OSError: there is no such file, or it cannot be read.
        RowError: it is no Parquet file, columns are missing, rows are broken or too few.
    """
    parquet: Any = optional_package("pyarrow.parquet", "data", "parquet_tasks")
    chosen = columns or Columns()
    try:
        file = parquet.ParquetFile(path, memory_map=True)
        read = list(chosen.read_from(file.schema_arrow.names))
    except OSError as error:
        raise type(error)(f"expected a Parquet file, got '{path}': {error}; name another file") from error
    except ValueError as error:
        raise RowError(f"{path}: {error}; name another file, or say in Columns which column is which field") from error
    sizes = [file.metadata.row_group(number).num_rows for number in range(file.metadata.num_row_groups)]
    return TableTasks(
        path,
        Path(path).stem,
        sizes,
        lambda number: file.read_row_group(number, columns=read),
        chosen,
        check=check,
        min_rows=min_rows,
    )
