"""Arrays in a folder, by name, through Orbax; and where the parameters of a model lie in the commits of a run.

What is written is taken first, so that it may change afterwards, and written later, on a thread. When a folder counts, and when
it is removed, is for ``flow.saving``. What of a trainer is written is for the trainer.
"""

import contextlib
import logging
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp
from flax import nnx

from flow.saving import Commit, complete
from stages.checkpoint.names import Arrays, differences, from_named
from stages.models.lora import trained
from stages.models.names import named_leaves

PARAMETERS = "parameters"
"""Folder of a model's parameters in the folder of whatever saved them."""
BEST, WINS = "best", "wins"
"""Folder beside it, of the best weights by version; and an empty file in such a one, where it wins. See ``best.py``."""


def save_arrays(folder: Path, tree: Any) -> Callable[[], None]:
    """Take a pytree of arrays to the host; it may be donated at once.

    Args:
        folder: where it goes; absolute, and not there yet.
        tree: of arrays, in any memory.

    Returns:
        What writes it and returns when it is on the disk. It raises ``OSError`` where it cannot; then there is no folder.
    """
    arrays = jax.device_get(named_leaves(tree))

    def write() -> None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            with contextlib.closing(_checkpointer()) as orbax:
                orbax.save(folder, args=ocp.args.StandardSave(arrays))
        except Exception as error:
            raise OSError(
                f"{folder}: expected {len(arrays)} arrays to be written, got {type(error).__name__}: {error}; "
                "free space, or check the folder"
            ) from error

    return write


def load_arrays(folder: Path, like: Any) -> Any:
    """Read a pytree of arrays. Changes nothing on the disk.

    Args:
        folder: where they lie.
        like: pytree of arrays, or of their shapes, in the layout and the places wanted.

    Raises:
        FileNotFoundError: there are none.
        ValueError: names, shapes or dtypes differ.
    """
    folder, wanted = folder.absolute(), named_leaves(like)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: expected arrays, got no folder; they were saved without these")
    with _unannounced(), contextlib.closing(_checkpointer()) as orbax:
        # Orbax would cast another dtype without a word, so the comparison is ours.
        problems = differences(wanted, orbax.metadata(folder).item_metadata.tree)
        if problems:
            shown = "; ".join(problems[:5]) + (f"; and {len(problems) - 5} more" if len(problems) > 5 else "")
            raise ValueError(
                f"{folder}: expected the arrays of this model, got others ({shown}); "
                "build the model with the config it was saved with"
            )
        target: Arrays = {name: ocp.utils.to_shape_dtype_struct(leaf) for name, leaf in wanted.items()}
        # Without a place to go to, Orbax gives arrays of NumPy.
        arrays = jax.tree.map(jax.numpy.asarray, orbax.restore(folder, args=ocp.args.StandardRestore(target)))
    return from_named(jax.eval_shape(lambda tree: tree, like), arrays)


def save_model(model: nnx.Module, folder: Path) -> Callable[[], None]:
    """Take what is trained of a model, for a commit between two graphs. As ``save_arrays``, into ``parameters`` there.

    Of a model with adapters these alone; the rest comes from where it came from when the run began.
    """
    return save_arrays(folder / PARAMETERS, nnx.state(model, trained(model)))


def load_model(model: nnx.Module, folder: Path) -> None:
    """Fill what is trained of a model from what ``save_model``, or a trainer, wrote into a folder, in place.

    Raises:
        FileNotFoundError: there is nothing of the kind.
        ValueError: names, shapes or dtypes differ from the model's.
    """
    nnx.update(model, load_arrays(folder / PARAMETERS, nnx.state(model, trained(model))))


def load_parameters(model: nnx.Module, checkpoints: Path | str, number: int | None = None) -> int:
    """Fill what is trained of a model from a run's commits, in place. Changes nothing on disk: the run may still be saving.

    Args:
        model: built with the config it was saved with.
        checkpoints: ``runs/<name>/checkpoints``.
        number: of the commit; ``None`` takes the latest that holds parameters, and of it the best weights where a gate said
            that they win.

    Returns:
        The number of the commit that was read.

    Raises:
        FileNotFoundError: no such folder, no complete commit with parameters in it, or not this one.
        ValueError: names, shapes or dtypes differ from the model's.
    """
    while True:
        commit = _chosen(Path(checkpoints).absolute(), number)
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(commit.reading())
            except FileNotFoundError:  # removed meanwhile, and there is a later one
                continue
            folder = parameters_of(commit)
            assert folder is not None, "only such commits are chosen"
            best = winner(folder / BEST) if number is None else None
            load_model(model, best or folder)
        return commit.number


def parameters_of(commit: Commit) -> Path | None:
    """The folder in a commit that holds the parameters of the model; ``None`` for a commit without.

    Those that a trainer, or ``save_model``, put into a folder of its own; where nothing is being trained, those that something
    else carries on in a folder within its own.
    """
    saved = [commit.folder / name for name in commit.manifest.saved]
    carried = [path for folder in saved for path in sorted(folder.glob("*/"))]
    return next((folder for folder in (*saved, *carried) if (folder / PARAMETERS).is_dir()), None)


def with_parameters(checkpoints: Path) -> list[Commit]:
    """The complete commits of a folder that hold the parameters of a model, oldest first."""
    return [commit for commit in complete(checkpoints) if parameters_of(commit) is not None]


def versions(folder: Path) -> list[int]:
    """The versions in a folder of best weights, ascending."""
    return sorted(int(path.name) for path in folder.glob("*") if path.name.isdecimal())


def winner(folder: Path) -> Path | None:
    """The folder of the weights that win, in a folder of best weights; ``None`` where none do."""
    found = [folder / f"{version:06}" for version in versions(folder)]
    return next((path for path in reversed(found) if (path / WINS).exists()), None)


def _chosen(checkpoints: Path, number: int | None) -> Commit:
    found = {commit.number: commit for commit in with_parameters(checkpoints)}
    if not found:
        raise FileNotFoundError(
            f"{checkpoints}: expected a complete commit with the parameters of a model, got none; "
            "name the `checkpoints` folder of a run"
        )
    if number is not None and number not in found:
        raise FileNotFoundError(
            f"{checkpoints}: expected one of the commits {list(found)}, got {number}; leave the number out for the latest"
        )
    return found[max(found) if number is None else number]


def _checkpointer() -> ocp.Checkpointer:
    return ocp.Checkpointer(ocp.StandardCheckpointHandler())


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
