"""Rows of runs in a table: how fast each was, beside what the event model gives with the same times."""

from collections.abc import Iterable, Mapping, Sequence

from graphs.bench.experiment import Cell, Claim, Column
from graphs.bench.traced import Traced

TARGET = 0.93
"""Of the model's groups per minute."""
RATE = "groups/min"
COLUMNS: Sequence[Column] = (
    Column("groups", "groups"),
    Column("rate", "groups per minute", RATE),
    Column("model", "event model, same times", RATE),
    Column("ratio", "run over model", "share"),
)


def rates(run: Traced) -> Mapping[str, Cell]:
    """The cells of ``COLUMNS``."""
    return {
        "groups": run.num_groups,
        "rate": run.groups_per_minute,
        "model": run.model_groups_per_minute,
        "ratio": run.judged.ratio,
    }


def of_the_model(what: str, runs: Iterable[Traced]) -> Claim:
    """Claims that the slowest of these runs, by what its model gives, is fast enough.

    Args:
        what: which runs these are.
        runs: at least one.
    """
    least = min(run.judged.ratio for run in runs)
    return Claim(
        f"{what}: groups per minute over those of the event model with the measured times, least of all", least, TARGET
    )
