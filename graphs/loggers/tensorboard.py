"""Writes event files for TensorBoard into ``RUN/tensorboard``, a folder for each phase.

A run that is gone on with writes its files anew from the rows it has: they hold each step once, wherever it was killed, and
also what came before TensorBoard was asked for. The axis is that of the row: steps of a trainer, versions of an evaluation,
seconds of health.
"""

import datetime
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphs.loggers.logger import Told, place_of
from graphs.runs.metrics import kind_of, numbers
from stages.packages import optional_package

FOLDER = "tensorboard"


class TensorBoard:
    """A logger.

    Args:
        folder: of the event files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._package = optional_package("tensorboardX", "tensorboard", "--options.loggers tensorboard")
        self._writers: dict[str, Any] = {}

    def row(self, row: Mapping[str, Any]) -> None:
        """Write each number as ``KIND/METRIC`` at the place of the row; nothing of a row without one."""
        place = place_of(row)
        if place is None:
            return
        writer = self._writer(row["phase"])
        time_s = datetime.datetime.fromisoformat(row["time"]).timestamp()
        for name, value in numbers(row):
            writer.add_scalar(f"{kind_of(row) or row['stage']}/{name}", value, place, walltime=time_s)

    def episode(self, episode: Mapping[str, Any]) -> None:
        """Nothing: steps have the means."""

    def close(self, summary: Mapping[str, Any]) -> None:
        """Write what is left."""
        for writer in self._writers.values():
            writer.close()

    def _writer(self, phase: str) -> Any:
        if phase not in self._writers:
            # A server that has read an older file of this folder forgets what it read when it sees the new one.
            self._writers[phase] = self._package.SummaryWriter(str(self._folder / phase), purge_step=0, flush_secs=5)
        return self._writers[phase]


def open_tensorboard(told: Told) -> TensorBoard:
    """Begin the event files of a run, with the rows that it has so far."""
    folder = told.folder / FOLDER
    if folder.exists():
        shutil.rmtree(folder)
    logger = TensorBoard(folder)
    for row in told.rows():
        logger.row(row)
    return logger
