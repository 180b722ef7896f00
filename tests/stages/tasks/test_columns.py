"""Tables and what becomes of their rows, without any package: a stretch is a list of rows."""

import pytest

from stages.records import Task
from stages.tasks.columns import Columns
from stages.tasks.rows import RowError
from stages.tasks.source import Tasks
from stages.tasks.tables import KEPT, TableTasks


class Listed:
    """A stretch, as pyarrow's are."""

    def __init__(self, rows: list[dict]) -> None:
        self.rows = rows
        self.num_rows = len(rows)

    def slice(self, offset: int, length: int) -> "Listed":
        return Listed(self.rows[offset : offset + length])

    def to_pylist(self) -> list[dict]:
        return self.rows


class File:
    """Stretches, and which of them were read."""

    def __init__(self, *stretches: list[dict]) -> None:
        self.stretches = stretches
        self.read: list[int] = []

    def tasks(self, columns: Columns | None = None, **settings) -> TableTasks:
        def read(number: int) -> Listed:
            self.read.append(number)
            return Listed(self.stretches[number])

        sizes = [len(stretch) for stretch in self.stretches]
        return TableTasks("a.table", "sums", sizes, read, columns or Columns(), **settings)


def row(number: int, **other) -> dict:
    return {"id": f"t{number}", "prompt": f"{number}?", "answer": number, **other}


def test_columns_become_fields_and_the_rest_goes_into_extra():
    columns = Columns(id="key", prompt="question", answer="gold", source="origin", difficulty="level")
    rows = [
        {"key": 7, "question": "1+1", "gold": "2", "origin": "web", "level": 3, "unit": "m"},
        {"key": 8, "question": "?", "gold": None, "origin": "web", "level": None, "unit": [1]},
    ]
    assert list(File(rows).tasks(columns)) == [
        Task("7", "1+1", "2", "web", {"unit": "m"}, "3"),
        Task("8", "?", None, "web", {"unit": [1]}),
    ]


def test_columns_may_be_left_out_and_ids_numbered():
    columns = Columns(id=None, answer=None, extra=("b",))
    rows = [{"prompt": "x", "a": 1, "b": 2}, {"prompt": "y", "a": 3, "b": 4}]
    assert list(File(rows[:1], rows[1:]).tasks(columns)) == [
        Task("sums-0", "x", None, "sums", {"b": 2}),
        Task("sums-1", "y", None, "sums", {"b": 4}),
    ]


def test_columns_that_are_not_there_are_told_with_those_that_are():
    with pytest.raises(ValueError, match="expected the columns id, prompt, gold, unit; got id, prompt, answer"):
        Columns(answer="gold", extra=("unit",)).read_from(["id", "prompt", "answer"])
    assert Columns(extra=("unit", "id")).read_from(["id", "prompt", "answer", "unit", "z"]) == (
        "id",
        "prompt",
        "answer",
        "unit",
    )


def test_every_broken_row_is_told_at_once_with_its_number_and_all_that_is_wrong_with_it():
    """S106."""
    rows = [
        row(0), {"id": None, "prompt": 3, "answer": 1.5}, row(0), row(3, prompt=""), row(4, id=True), row(5, level=1),
    ]  # fmt: skip
    with pytest.raises(RowError) as refused:
        File(rows[:2], rows[2:]).tasks(Columns(), check=lambda task: "level: expected none" if "level" in task.extra else None)
    head, *told, remedy = str(refused.value).splitlines()
    assert head == (
        "expected rows with id in column id, prompt in column prompt, answer in column answer; "
        "got 5 that are not as they should be, in a.table:"
    )
    assert [line.split("; got")[0].strip() for line in told] == [
        "row 2: id: expected text, got null; prompt: expected text, got int; answer: expected text, got float",
        "row 3: id: expected a name used once, got 't0', as in row 1",
        "row 4: prompt: expected text, got none",
        "row 5: id: expected text, got bool",
        "row 6: level: expected none",
    ]
    assert remedy == "correct or remove these rows"


def test_too_few_rows_are_refused():
    """S108."""
    with pytest.raises(RowError, match=r"expected at least 4 rows; got 2, in a\.table; add rows"):
        File([row(0), row(1)]).tasks(min_rows=4)
    with pytest.raises(RowError, match="expected at least 1 rows; got 0"):
        File().tasks()


def test_rows_are_found_whatever_their_stretch():
    tasks = File([row(0)], [], [row(1), row(2)], [row(3)]).tasks()
    assert [tasks[number].id for number in range(4)] == ["t0", "t1", "t2", "t3"]
    assert (tasks[-1].id, len(tasks)) == ("t3", 4)
    assert [task.id for task in tasks[1:3]] == ["t1", "t2"]
    with pytest.raises(IndexError):
        tasks[4]


def test_an_epoch_in_stretches_reads_each_once_though_few_are_kept():
    file = File(*([row(10 * stretch + number) for number in range(10)] for stretch in range(12)))
    tasks = file.tasks()
    file.read.clear()
    source = Tasks(tasks, seed=1, stretches=tasks.stretches)
    assert len({source.draw().id for _ in range(120)}) == 120
    assert sorted(file.read) == sorted(set(file.read))
    assert len(file.read) >= 12 - KEPT
