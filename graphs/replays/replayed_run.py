"""The weights that a replay ended with, as the folder of a run, so that everything takes it that takes a run."""

import shutil
from pathlib import Path

from flow.saving import Commits
from graphs.runs.commits import MODEL
from stages.checkpoint.store import save_model
from stages.models.transformer import Transformer


def write_run(folder: Path, run: Path, model: Transformer) -> None:
    """Write it, whole or not at all.

    Args:
        folder: not there yet.
        run: that was replayed; its settings are taken over.
        model: has the weights.
    """
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    with Commits(part / "checkpoints") as commits:
        draft = commits.begin()
        commits.write(draft, {"replay_of": str(run)}, writes=[save_model(model, draft.folder / MODEL)])
    shutil.copyfile(run / "config.json", part / "config.json")
    part.rename(folder)
