"""Which column of a table becomes which field of a task, and what is wrong with a row that does not.

Tables come with the columns their makers chose; here they get the names of ours. Reading them is for ``tables.py``.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from stages.records import Task
from stages.tasks.identity import plain


class Columns(BaseModel):
    """Names of columns."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str | None = "id"
    """Text or integers, each used once. ``None``: the number of the row, after the name of the set."""
    prompt: str = "prompt"
    """Text."""
    answer: str | None = "answer"
    """Text, or integers, which become their digits; null for none. ``None``: no task has one."""
    source: str | None = None
    """Text. ``None``: the name of the set."""
    difficulty: str | None = None
    """Text or integers, or null. ``None``: no task has one."""
    extra: tuple[str, ...] | None = None
    """Columns that go into ``Task.extra`` under their names, as plain values: dates and decimals are text. ``None``: all that
    are named nowhere above."""

    @property
    def named(self) -> dict[str, str]:
        """Column of each field that has one."""
        fields = ("id", "prompt", "answer", "source", "difficulty")
        return {field: column for field in fields if (column := getattr(self, field)) is not None}

    def read_from(self, columns: Sequence[str]) -> tuple[str, ...]:
        """The columns of a table that are read.

        Raises:
            ValueError: one of them is not there; names them all.
        """
        wanted = (*self.named.values(), *(self.extra or ()))
        missing = [column for column in wanted if column not in columns]
        if missing:
            raise ValueError(f"expected the columns {', '.join(dict.fromkeys(wanted))}; got {', '.join(columns) or 'none'}")
        return tuple(columns) if self.extra is None else tuple(dict.fromkeys(wanted))

    def task(self, row: Mapping[str, Any], number: int, name: str) -> Task:
        """A row as a task.

        Args:
            row: values by column.
            number: of the row in its set, from 0.
            name: of the set.

        Raises:
            ValueError: values are not what their fields take; tells them all.
        """
        faults: list[str] = []
        fields = {field: _text(field, row[column], faults) for field, column in self.named.items()}
        if not fields["prompt"] and not faults:
            faults.append("prompt: expected text, got none")
        if faults:
            raise ValueError("; ".join(faults))
        used = set(self.named.values())
        extra = [column for column in row if column not in used] if self.extra is None else self.extra
        return Task(
            id=f"{name}-{number}" if self.id is None else str(fields["id"]),
            prompt=str(fields["prompt"]),
            answer=fields.get("answer"),
            source=name if self.source is None else str(fields["source"]),
            extra=plain({column: row[column] for column in extra}) if extra else {},
            difficulty=fields.get("difficulty"),
        )


def _text(field: str, value: Any, faults: list[str]) -> str | None:
    """The value as text; notes what is wrong with it."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and field in ("id", "answer", "difficulty"):
        return str(value)
    if value is None and field in ("answer", "difficulty"):
        return None
    faults.append(f"{field}: expected text, got {'null' if value is None else type(value).__name__}")
    return None
