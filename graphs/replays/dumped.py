"""The batch of one step on disk, as the trainer packed it: arrays for programs, text for people."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from graphs.rl_config import RlConfig
from stages.batches.rows import Rows
from stages.records import Batch
from stages.text.chat import Chat
from stages.train.bad_steps import named_arrays, places_of
from stages.train.minibatches import Minibatch, of_step

ARRAYS_FILE, TEXT = "rows.npz", "rows.txt"


def dump_step(folder: Path, batches: Sequence[Batch], config: RlConfig, chat: Chat) -> None:
    """Write what the updates of a step were made from.

    ``minibatch-0`` and so on, in birth order, each with ``rows.npz`` (the micro-batches in order, their arrays as
    ``0.ids``, ``0.mask``, see ``stages.batches.rows.Rows``; old log-probabilities that a step of several updates compares with
    are not in it) and ``rows.txt``.

    Args:
        folder: not there yet.
        batches: of the step, in birth order.
        config: of the run.
        chat: of the run, to read the tokens.
    """
    parts = of_step(batches, config.trainer, config.loss, whiten=config.advantages.whiten)
    for number, part in enumerate(parts):
        target = folder / f"minibatch-{number}"
        target.mkdir(parents=True)
        with (target / ARRAYS_FILE).open("wb") as file:
            np.savez(file, **named_arrays(part.rows))  # pyright: ignore[reportArgumentType]
        (target / TEXT).write_text("\n".join(_lines(part, chat)) + "\n")


def _lines(part: Minibatch, chat: Chat) -> Iterator[str]:
    groups = [batch.birth for batch in part.batches]
    yield f"{len(part.rows)} micro-batches, {part.num_targets} targets, divisor {part.divisor:g}, groups {groups}"
    yield "what the policy sampled and is trained on stands in [[ ]]"
    for block, row, number, name in places_of(part):
        rows = part.rows[block]
        here = np.flatnonzero(rows.segments[row] == number)
        yield ""
        yield f"micro-batch {block}, row {row}, tokens {here[0]} to {here[-1]}: {name}; {_figures(rows, row, here)}"
        yield _text(rows.ids[row, here], rows.mask[row, here], chat)


def _figures(rows: Rows, row: int, here: np.ndarray) -> str:
    targets = here[rows.mask[row, here]]
    told = [f"{len(targets)} targets", f"weight {rows.weights[row, targets].mean():g}"]
    for name in ("advantages", "logprobs", "reference", "values", "returns"):
        array = getattr(rows, name)
        if array is not None:
            low, mean, high = (float(function(array[row, targets])) for function in (np.min, np.mean, np.max))
            told.append(f"{name} {low:.4g}" if low == high else f"{name} {low:.4g} to {high:.4g}, mean {mean:.4g}")
    versions = np.unique(rows.versions[row, targets])
    return ", ".join([*told, f"versions {', '.join(map(str, versions))}"])


def _text(ids: np.ndarray, mask: np.ndarray, chat: Chat) -> str:
    """The tokens as text, runs of targets marked."""
    edges = np.flatnonzero(np.diff(mask)) + 1
    runs = zip(np.split(ids, edges), np.split(mask, edges), strict=True)
    return "".join(f"[[{chat.decode(run)}]]" if marked[0] else chat.decode(run) for run, marked in runs)
