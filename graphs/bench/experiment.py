"""What an experiment is, and what it finds: claims with figures, tables, plots. Values only; no experiment is here.

An experiment is a function of its settings. It measures real work in this process, or in processes that it starts, and says
what came out as ``Findings``, which are all that the report, the page and the JSON are made of: who shows them runs nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

from graphs.report.plots import Plot

Cell = float | int | str | bool | None
"""What stands in a table: a number as it was measured, not rounded; ``None`` where nothing was measured, never 0."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: of its field in the rows, a word.
        head: what stands above it.
        unit: of its numbers, as ``s`` or ``groups/min``; ``share`` writes them as percentages; empty for plain numbers or text.
        digits: significant ones that people are shown.
    """

    name: str
    head: str
    unit: str = ""
    digits: int = 3


@dataclass(frozen=True)
class Table:
    """Rows of measurements.

    Attributes:
        title: one line: what each row is.
        columns: in the order in which they are shown.
        rows: by name of the column.
        note: said below it; empty for nothing.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Cell]]
    note: str = ""


@dataclass(frozen=True)
class Claim:
    """One thing that was wanted, and what came out.

    Attributes:
        what: one line, with its unit.
        got: what was measured.
        wanted: the bound; ``None`` for a figure that is told without one.
        kind: ``least``, ``most``, or ``equal``, where ``wanted`` and ``got`` are the same to the bit.
    """

    what: str
    got: float | int | str | bool | None
    wanted: float | int | str | bool | None = None
    kind: Literal["least", "most", "equal"] = "least"

    @property
    def holds(self) -> bool | None:
        """Whether it came out as wanted; ``None`` where nothing was wanted. What was not measured does not hold."""
        if self.wanted is None:
            return None
        if self.kind == "equal":
            return self.got == self.wanted
        if not isinstance(self.got, int | float) or not isinstance(self.wanted, int | float):
            return False
        return self.got >= self.wanted if self.kind == "least" else self.got <= self.wanted


@dataclass(frozen=True)
class Findings:
    """What an experiment found.

    Attributes:
        answer: one or two sentences with the figures that matter, for whoever reads nothing else.
        claims: what was wanted, and what came out.
        tables: measurements.
        plots: of the same.
        notes: what a reader has to know to judge the figures, a sentence each.
        detail: whatever else is worth keeping, for scripts.
    """

    answer: str
    claims: Sequence[Claim] = ()
    tables: Sequence[Table] = ()
    plots: Sequence[Plot] = ()
    notes: Sequence[str] = ()
    detail: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def holds(self) -> bool:
        """Whether every claim came out as wanted."""
        return all(claim.holds is not False for claim in self.claims)


Tell = Callable[[int, int, str], None]
"""``tell(done, total, what)``: so many of the parts of an experiment are done, and this is measured now."""


@dataclass(frozen=True)
class Experiment:
    """One question that is answered by measuring.

    Attributes:
        name: one word, of the command line: ``headrace bench NAME``.
        title: one line.
        question: what it asks, why that matters, how it is measured and against what: a paragraph for the page.
        config: its settings; the defaults are the committed configuration whose figures are published.
        short: settings with which it takes seconds, for tests and a first look. Its claims may not hold.
        run: measures. It may start processes and leaves none.
        long: whether it takes so long that ``headrace bench all`` leaves it to whoever asks for it by name.
    """

    name: str
    title: str
    question: str
    config: type[BaseModel]
    short: BaseModel
    run: Callable[[Any, Tell], Findings]
    long: bool = False
