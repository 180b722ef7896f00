"""Tasks out of a Hugging Face data set on disk: a folder that ``Dataset.save_to_disk`` or ``DatasetDict.save_to_disk`` wrote.

Its files are Arrow streams, which pyarrow maps into memory: the operating system reads what is looked at. The package
``datasets`` is not needed. Columns are what the files hold: features that the package makes of them, such as names of classes,
are not made.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from stages.packages import optional_package
from stages.records import Task
from stages.tasks.columns import Columns
from stages.tasks.rows import RowError
from stages.tasks.tables import TableTasks


class _File(msgspec.Struct):
    filename: str


class _State(msgspec.Struct):
    """``state.json``: what the folder of one data set holds."""

    data_files: list[_File] = msgspec.field(name="_data_files")
    indices: list[_File] | None = msgspec.field(name="_indices_data_files", default=None)


class _Splits(msgspec.Struct):
    """``dataset_dict.json``: the folders of several."""

    splits: list[str]


def dataset_tasks(
    folder: str | Path,
    split: str | None = None,
    *,
    columns: Columns | None = None,
    check: Callable[[Task], str | None] | None = None,
    min_rows: int = 1,
) -> TableTasks:
    """The tasks of a data set. Every row is read once here and checked; later, the rows that are drawn.

    Args:
        folder: what was saved. Its name is the name of the set.
        split: which of several; ``None`` where there is one data set.
        columns: which column is which field; ``None`` takes the columns ``id``, ``prompt`` and ``answer``.
        check: says in one line what is wrong with a task; ``None`` for nothing.
        min_rows: fewer are refused.

    Raises:
        MissingPackageError: pyarrow is not installed.
        RowError: it is no such folder, or not of one data set; columns are missing, rows are broken or too few.
        OSError: a file of it is missing or cannot be read.
    """
    pyarrow: Any = optional_package("pyarrow", "data", "dataset_tasks")
    chosen = columns or Columns()
    one = _folder_of(Path(folder), split)
    batches: list[Any] = []
    for file in _files(one):
        try:
            batches += pyarrow.ipc.open_stream(pyarrow.memory_map(str(one / file), "r")).read_all().to_batches()
        except ValueError as error:
            raise RowError(f"expected an Arrow stream; got {error}, in {one / file}; save the data set again") from error
    try:
        read = list(chosen.read_from(batches[0].schema.names)) if batches else []
    except ValueError as error:
        raise RowError(f"{one}: {error}; name another folder, or say in Columns which column is which field") from error
    sizes = [batch.num_rows for batch in batches]
    return TableTasks(
        one,
        Path(folder).name,
        sizes,
        lambda number: batches[number].select(read),
        chosen,
        check=check,
        min_rows=min_rows,
        at_random=True,
    )


def _folder_of(folder: Path, split: str | None) -> Path:
    """The folder of the one data set that is meant."""
    try:
        splits = msgspec.json.decode((folder / "dataset_dict.json").read_bytes(), type=_Splits).splits
    except FileNotFoundError:
        splits = []
    if (split is None) == (not splits) and (split is None or split in splits):
        return folder if split is None else folder / split
    has = f"the splits {', '.join(splits)}" if splits else "one data set, without splits"
    wanted = "no split" if split is None else f"split {split!r}"
    raise RowError(f"expected one data set; got {wanted} of {folder}, which has {has}; name one that is there")


def _files(folder: Path) -> list[str]:
    try:
        state = msgspec.json.decode((folder / "state.json").read_bytes(), type=_State)
    except (OSError, msgspec.DecodeError) as error:
        raise RowError(
            f"expected a folder that save_to_disk wrote, with a state.json; got {type(error).__name__}: {error}, in {folder}; "
            "name another folder"
        ) from error
    if state.indices:
        raise RowError(
            f"expected rows in the order they are used in; got a selection kept beside them, in {folder}/state.json; "
            "load it, call its flatten_indices(), and save what that gives"
        )
    return [file.filename for file in state.data_files]
