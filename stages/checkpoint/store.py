"""Checkpoints of one run on disk, through Orbax: parameters, optimizer state and step, saved off the caller.

Layout: ``<folder>/<step>/{parameters,optimizer,meta}``. A step counts only once its commit mark and those of its parts are
there; a half-written one is never listed and never chosen. Arrays are laid out by name (``names.py``). Not the snapshot of the
graph: that names one of these steps.
"""

import contextlib
import logging
from collections.abc import Generator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import jax
import msgspec
import orbax.checkpoint as ocp
from flax import nnx

from stages.checkpoint.names import Arrays, differences, from_named
from stages.models.lora import trained
from stages.models.names import named_leaves

COMMIT_MARK = "commit_success.txt"
"""Written by Orbax as the last file of a part, and of a step."""
BEST = "best"
"""Folder beside the steps: see ``best.py``."""
WINS = "wins"
"""File in it: what loads the run takes these weights."""


class Saved(msgspec.Struct, frozen=True, eq=False):
    """What ``CheckpointStore.restore`` gives."""

    step: int
    parameters: Any
    """Pytree, in the layout asked for."""
    optimizer: Any
    """Pytree, in the layout asked for; ``None`` where none was asked for."""


class CheckpointStore:
    """Saves and restores the steps of one run. A context manager; closing waits for the save in flight.

    Args:
        folder: where the steps go, ``runs/<name>/checkpoints``; made if absent.
        keep: number of latest steps kept; ``None`` keeps all.
    """

    def __init__(self, folder: Path | str, keep: int | None = 2) -> None:
        if keep is not None and keep < 1:
            raise ValueError(f"CheckpointStore: expected keep of at least 1 or None, got {keep}; None keeps all steps")
        self.folder = Path(folder).absolute()
        self._keep = keep
        self._manager: ocp.CheckpointManager | None = None
        self._in_flight: int | None = None

    def __enter__(self) -> Self:
        self._manager = _open_manager(self.folder, self._keep)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Wait for the save in flight and close. Closing twice is harmless.

        Raises:
            OSError: the save in flight failed.
        """
        if self._manager is None:
            return
        try:
            self.wait()
        finally:
            manager, self._manager = self._manager, None
            manager.close()

    def save(self, step: int, parameters: Any, optimizer: Any = None) -> None:
        """Start to save a step and return; the arrays may be donated at once.

        Args:
            step: above every step in the folder.
            parameters: pytree of arrays.
            optimizer: pytree of arrays; ``None`` saves none.

        Raises:
            OSError: the save *before* this one failed; nothing of this one is written.
            ValueError: the step is not above the latest one.
        """
        self.wait()
        manager = self._opened()
        latest = self.latest()
        if latest is not None and step <= latest:
            raise ValueError(f"{self.folder}: expected a step above {latest}, got {step}; give each run a folder of its own")
        parts = {"parameters": ocp.args.StandardSave(named_leaves(parameters)), "meta": ocp.args.JsonSave({"step": step})}
        if optimizer is not None:
            parts["optimizer"] = ocp.args.StandardSave(named_leaves(optimizer))
        self._in_flight = step
        try:
            written = manager.save(step, args=ocp.args.Composite(**parts), force=True)
        except Exception as error:
            self._fail(error)
        if not written:
            raise OSError(
                f"{self.folder}: expected step {step} to be saved, got a refusal from Orbax; is it being saved already?"
            )

    def wait(self) -> None:
        """Wait until nothing is in flight.

        Raises:
            OSError: the save in flight failed. The store is usable again afterwards, and the step may be saved anew.
        """
        manager = self._opened()
        try:
            manager.wait_until_finished()
        except Exception as error:
            self._fail(error)
        self._in_flight = None

    def latest(self) -> int | None:
        """Latest complete step, ``None`` where there is none."""
        return max(complete_steps(self.folder), default=None)

    def restore(self, parameters: Any, optimizer: Any = None, step: int | None = None) -> Saved:
        """Read a step.

        Args:
            parameters: pytree of arrays, or of their shapes, in the layout wanted.
            optimizer: likewise; ``None`` leaves the optimizer state on disk.
            step: ``None`` takes the latest complete one.

        Raises:
            FileNotFoundError: no complete step, or not this one.
            ValueError: names, shapes or dtypes differ.
        """
        step = _chosen_step(self.folder, step)
        manager = self._opened()
        restored = _read(manager, self.folder, step, "parameters", parameters)
        state = None if optimizer is None else _read(manager, self.folder, step, "optimizer", optimizer)
        return Saved(step=step, parameters=restored, optimizer=state)

    def _opened(self) -> ocp.CheckpointManager:
        if self._manager is None:
            raise RuntimeError(f"{self.folder}: expected an open store, got a closed one; use it inside `with store:`")
        return self._manager

    def _fail(self, error: Exception) -> None:
        # Orbax goes on to list the step whose commit failed and refuses to save it again: only a new manager forgets it.
        failed, self._in_flight = self._in_flight, None
        self._manager = _open_manager(self.folder, self._keep)
        raise OSError(
            f"{self.folder}: expected step {failed} to be written, got {type(error).__name__}: {error}; "
            f"the latest complete step is {self.latest()}; free space or check the folder, then save again"
        ) from error


def load_parameters(model: nnx.Module, folder: Path | str, step: int | None = None) -> int:
    """Fill what is trained of a model from a run's checkpoints, in place. Changes nothing on disk: the run may still be saving.

    Of a model with adapters these alone; the rest comes from where it came from when the run began.

    Args:
        model: built with the config it was saved with.
        folder: ``runs/<name>/checkpoints``.
        step: ``None`` takes the best weights where a gate said that they win, else the latest complete step.

    Returns:
        The step that was read.

    Raises:
        FileNotFoundError: no such folder, no complete step in it, or not this one.
        ValueError: names, shapes or dtypes differ from the model's.
    """
    folder = Path(folder).absolute()
    if step is None and (folder / BEST / WINS).exists() and complete_steps(folder / BEST):
        folder = folder / BEST
    step = _chosen_step(folder, step)
    # A manager that may write deletes what it takes for the leftovers of a crash: the step that a live run is saving.
    options = ocp.CheckpointManagerOptions(
        read_only=True, save_interval_steps=0, create=False, cleanup_tmp_directories=False, max_to_keep=None
    )
    with _unannounced(), contextlib.closing(_manager(folder, options)) as manager:
        nnx.update(model, _read(manager, folder, step, "parameters", nnx.state(model, trained(model))))
    return step


def complete_steps(folder: Path) -> list[int]:
    """Complete steps in a folder, ascending: those whose commit mark, and that of each part, is there."""
    found = [path for path in folder.glob("*") if path.name.isdecimal() and (path / COMMIT_MARK).exists()]
    whole = [path for path in found if {"parameters", "meta"} <= {part.name for part in path.iterdir() if part.is_dir()}]
    marked = [path for path in whole if all((part / COMMIT_MARK).exists() for part in path.iterdir() if part.is_dir())]
    return sorted(int(path.name) for path in marked)


def _open_manager(folder: Path, keep: int | None) -> ocp.CheckpointManager:
    folder.mkdir(parents=True, exist_ok=True)
    return _manager(folder, ocp.CheckpointManagerOptions(max_to_keep=keep, cleanup_tmp_directories=True))


def _manager(folder: Path, options: ocp.CheckpointManagerOptions) -> ocp.CheckpointManager:
    # Without handlers by name, a manager that has saved nothing yet gives no metadata.
    arrays, meta = ocp.StandardCheckpointHandler, ocp.JsonCheckpointHandler
    handlers = {"parameters": arrays(), "optimizer": arrays(), "meta": meta()}
    return ocp.CheckpointManager(folder, options=options, item_handlers=handlers)


@contextlib.contextmanager
def _unannounced() -> Generator[None]:
    """Keep Orbax from warning that what is opened to be read is read only."""

    def heard(record: logging.LogRecord) -> bool:
        return "directory is read only" not in str(record.msg)

    logger = logging.getLogger("absl")
    logger.addFilter(heard)
    try:
        yield
    finally:
        logger.removeFilter(heard)


def _chosen_step(folder: Path, step: int | None) -> int:
    steps = complete_steps(folder)
    if not steps:
        raise FileNotFoundError(
            f"{folder}: expected a checkpoint, got no complete step; name the `checkpoints` folder of a run"
        )
    if step is not None and step not in steps:
        raise FileNotFoundError(f"{folder}: expected one of the steps {steps}, got {step}; leave the step out for the latest")
    return steps[-1] if step is None else step


def _read(manager: ocp.CheckpointManager, folder: Path, step: int, part: str, like: Any) -> Any:
    wanted = named_leaves(like)
    if not (folder / str(step) / part).is_dir():
        raise FileNotFoundError(f"{folder}/{step}: expected a part {part!r}, got none; the run was saved without it")
    # Orbax would cast another dtype without a word, so the comparison is ours.
    problems = differences(wanted, manager.item_metadata(step)[part].tree)
    if problems:
        shown = "; ".join(problems[:5]) + (f"; and {len(problems) - 5} more" if len(problems) > 5 else "")
        raise ValueError(
            f"{folder}/{step}/{part}: expected the arrays of this model, got others ({shown}); "
            "build the model with the config it was saved with"
        )
    target: Arrays = {name: ocp.utils.to_shape_dtype_struct(leaf) for name, leaf in wanted.items()}
    arrays = manager.restore(step, args=ocp.args.Composite(**{part: ocp.args.StandardRestore(target)}))[part]
    return from_named(jax.eval_shape(lambda tree: tree, like), arrays)
