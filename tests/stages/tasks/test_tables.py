"""Parquet files and saved data sets, written by pyarrow as their makers write them."""

import json
import subprocess
import sys

import pytest

from stages.packages import MissingPackageError
from stages.records import Task
from stages.tasks.columns import Columns
from stages.tasks.files import read_tasks
from stages.tasks.jsonl import JsonlTasks
from stages.tasks.parquet import parquet_tasks
from stages.tasks.rows import RowError
from stages.tasks.saved_dataset import dataset_tasks
from stages.tasks.source import Tasks
from stages.tasks.tables import stretches_of

COLUMNS = Columns(id=None, prompt="question", answer="answer", difficulty="level", extra=("tags",))
ROWS = [
    {"question": f"{n} + {n}", "answer": 2 * n, "level": None if n % 3 else "hard", "tags": ["a"] * (n % 3), "noise": n}
    for n in range(50)
]
TASKS = [
    Task(f"sums-{n}", f"{n} + {n}", str(2 * n), "sums", {"tags": ["a"] * (n % 3)}, None if n % 3 else "hard") for n in range(50)
]


@pytest.fixture
def pyarrow():
    found = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")
    return found


@pytest.fixture
def parquet(pyarrow, tmp_path):
    def write(rows, name="sums.parquet", size=8):
        path = tmp_path / name
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=size)
        return path

    return write


@pytest.fixture
def saved(pyarrow, tmp_path):
    def write(rows, name="sums", files=2, **state):
        """A folder as ``Dataset.save_to_disk`` writes it: Arrow streams, and a state that names them in order."""
        folder = tmp_path / name
        folder.mkdir(parents=True)
        names = [f"data-{number:05}-of-{files:05}.arrow" for number in range(files)]
        share = -(-len(rows) // files)
        for number, file in enumerate(names):
            table = pyarrow.Table.from_pylist(rows[number * share : (number + 1) * share])
            with pyarrow.OSFile(str(folder / file), "wb") as sink, pyarrow.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table, max_chunksize=8)
        listed = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "f", "_format_type": None, **state}
        (folder / "state.json").write_text(json.dumps(listed))
        (folder / "dataset_info.json").write_text("{}")
        return folder

    return write


@pytest.mark.extra
def test_a_parquet_file_gives_its_tasks_in_order(parquet):
    tasks = parquet_tasks(parquet(ROWS), columns=COLUMNS)
    assert list(tasks) == TASKS
    assert [tasks[number] for number in (49, 0, 8, 7)] == [TASKS[number] for number in (49, 0, 8, 7)]
    assert stretches_of(tasks) == (8, 8, 8, 8, 8, 8, 2)
    assert stretches_of(TASKS) is None


@pytest.mark.extra
def test_a_saved_data_set_gives_its_tasks_in_order(saved):
    tasks = dataset_tasks(saved(ROWS), columns=COLUMNS)
    assert list(tasks) == TASKS
    assert [tasks[number] for number in (49, 0, 25, 24)] == [TASKS[number] for number in (49, 0, 25, 24)]
    source = Tasks(tasks, 0, stretches=stretches_of(tasks))
    assert sorted(source.draw().id for _ in range(50)) == sorted(task.id for task in TASKS)


@pytest.mark.extra
def test_a_path_is_read_as_what_it_is(parquet, saved, tmp_path):
    lines = tmp_path / "sums.jsonl"
    lines.write_text('{"id": "a", "prompt": "1+1"}\n')
    assert isinstance(read_tasks(lines), JsonlTasks)
    assert list(read_tasks(parquet(ROWS), columns=COLUMNS)) == list(read_tasks(saved(ROWS), columns=COLUMNS)) == TASKS


@pytest.mark.extra
def test_a_split_of_several_is_taken_by_its_name(saved, tmp_path):
    saved(ROWS[:9], "sums/train")
    saved(ROWS[9:12], "sums/test")
    (tmp_path / "sums" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert [task.prompt for task in dataset_tasks(tmp_path / "sums", "test", columns=COLUMNS)] == [
        "9 + 9",
        "10 + 10",
        "11 + 11",
    ]
    with pytest.raises(RowError, match=r"got no split of .*sums, which has the splits train, test; name one that is there"):
        dataset_tasks(tmp_path / "sums", columns=COLUMNS)
    with pytest.raises(RowError, match="got split 'dev' of"):
        dataset_tasks(tmp_path / "sums", "dev", columns=COLUMNS)
    with pytest.raises(RowError, match=r"got split 'train' of .*, which has one data set, without splits"):
        dataset_tasks(tmp_path / "sums" / "train", "train", columns=COLUMNS)


@pytest.mark.extra
def test_broken_rows_are_told_with_their_numbers(parquet, saved):
    """S106."""
    rows = [dict(row) for row in ROWS]
    rows[20]["question"], rows[41]["question"] = None, ""
    for tasks, path in ((parquet_tasks, parquet(rows)), (dataset_tasks, saved(rows))):
        with pytest.raises(RowError) as refused:
            tasks(path, columns=COLUMNS)
        assert "got 2 that are not as they should be" in str(refused.value)
        assert "\n  row 21: prompt: expected text, got null; got {" in str(refused.value)
        assert "\n  row 42: prompt: expected text, got none; got {" in str(refused.value)


@pytest.mark.extra
def test_columns_that_are_not_there_are_told(parquet, saved):
    wanted = "expected the columns id, prompt, answer; got question, answer, level, tags, noise"
    for tasks, path in ((parquet_tasks, parquet(ROWS)), (dataset_tasks, saved(ROWS))):
        with pytest.raises(RowError, match=f"{wanted}; name another f.*, or say in Columns which column is which field"):
            tasks(path)


@pytest.mark.extra
def test_what_is_no_such_file_is_refused(pyarrow, tmp_path, saved):
    (tmp_path / "junk.parquet").write_text("no parquet at all, this is")
    with pytest.raises(RowError, match=r"junk\.parquet: Parquet magic bytes not found"):
        parquet_tasks(tmp_path / "junk.parquet")
    with pytest.raises(FileNotFoundError, match=r"expected a Parquet file, got '.*none\.parquet'"):
        parquet_tasks(tmp_path / "none.parquet")
    with pytest.raises(RowError, match=r"a folder that save_to_disk wrote, with a state\.json; got FileNotFoundError"):
        dataset_tasks(tmp_path / "none")
    with pytest.raises(RowError, match="got a selection kept beside them"):
        dataset_tasks(saved(ROWS, _indices_data_files=[{"filename": "indices.arrow"}]), columns=COLUMNS)
    broken = saved(ROWS, "broken", files=1)
    (broken / "data-00000-of-00001.arrow").write_bytes(b"version https://git-lfs")
    with pytest.raises(RowError, match=r"expected an Arrow stream; got .*data-00000-of-00001\.arrow; save the data set again"):
        dataset_tasks(broken, columns=COLUMNS)


LAZY = """
import resource, sys
from stages.tasks.columns import Columns
from stages.tasks.parquet import parquet_tasks
import pyarrow
tasks = parquet_tasks(sys.argv[1], columns=Columns(id=None, answer=None))
held = pyarrow.default_memory_pool().max_memory()
tasks[0], tasks[len(tasks) - 1]
print(held, pyarrow.total_allocated_bytes(), len(tasks))
"""


@pytest.mark.extra
@pytest.mark.slow
def test_a_file_is_never_in_memory_whole(parquet):
    """32 row groups of a megabyte: no more than those kept, and what reading one takes, are ever held."""
    rows = [{"prompt": f"{n:07}" * 1500} for n in range(3200)]
    path = parquet(rows, "large.parquet", size=100)
    ran = subprocess.run([sys.executable, "-c", LAZY, str(path)], capture_output=True, text=True, check=True)
    held, after, number = map(int, ran.stdout.split())
    assert number == 3200
    assert held < 12_000_000 < 3200 * 7 * 1500
    assert after < 8_000_000


def test_without_the_package_the_error_says_what_to_install(monkeypatch, tmp_path):
    for module in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, module, None)
    for tasks in (parquet_tasks, dataset_tasks):
        with pytest.raises(MissingPackageError, match=rf"in {tasks.__name__}; install it with: pip install 'headrace\[data\]'"):
            tasks(tmp_path / "x")
