"""``headrace replay-batch``: a bad step of a run, with the model and the loss of that run. The work is in ``stages/train``."""

from collections.abc import Callable
from pathlib import Path

from graphs.runs.saved import saved_config, saved_entry, understood
from stages.train.bad_steps import FACTS, read_bad_step
from stages.train.replay import replay, report


def prepare_repeat(path: Path) -> Callable[[], str]:
    """Find a bad step and the run it is of.

    Args:
        path: ``RUN/bad-steps/step-000012``, or the ``bad.json`` in it.

    Returns:
        What repeats it, and gives the report.

    Raises:
        LookupError: there is no such bad step, it lies in no run, or the run is one of a graph of the user's own.
        ValueError: files of another version, or damaged.
    """
    folder = path.parent if path.name == FACTS else path
    read_bad_step(folder)
    saved = saved_config(folder.absolute().parents[1])
    entry = saved_entry(saved)
    program = entry.make(understood(entry.config, saved["config"]))
    training = next(phase.training for phase in program.phases if phase.main and phase.training is not None)
    parts, scoring = program.parts, training.scoring
    assert parts is not None, "every ready program has parts"

    def work() -> str:
        parts.load()
        return report(replay(parts.model if scoring is None else scoring.model, training.loss, folder))

    return work
