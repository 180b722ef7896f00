"""Updates that were not applied, on disk with all that is needed to repeat them. Written by the trainer, for ``replay``.

A folder for each, ``step-000012``: ``rows.npz`` (the micro-batches, in order), ``weights`` (what was trained, as it was then)
and, last, ``bad.json`` (numbers and settings). One without ``bad.json`` is torn.
"""

import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np
from pydantic import BaseModel

from stages.batches.rows import Rows
from stages.checkpoint.store import PARAMETERS, save_arrays
from stages.losses.tokens import Loss
from stages.train.config import TrainerConfig
from stages.train.metrics import Updated
from stages.train.minibatches import Minibatch
from stages.train.stop import StopRun

FACTS, ROWS, WEIGHTS = "bad.json", "rows.npz", "weights"


class BadStepError(StopRun):
    """An update was bad, and ``on_bad_step`` is "stop"."""


class BadStep(msgspec.Struct, frozen=True):
    """What ``bad.json`` holds. Numbers that may be infinite or NaN are text, with all their bits."""

    step: int
    """The step it would have been, from 1."""
    minibatch: int
    """Number of the minibatch in its step."""
    reason: str
    """See ``stages.train.metrics.Reason``."""
    loss: str
    """As ``float.hex`` writes it."""
    grad_norm: str
    """The same."""
    bound: str
    """The same: the largest norm that would have been applied."""
    divisor: float
    version: int
    """Of the parameters, as ``Learner.accumulate`` takes it."""
    temperature: float
    config: dict[str, Any]
    """The trainer's."""
    loss_name: str
    """Class of the loss."""
    loss_config: Any
    """Its settings."""
    segments: list[tuple[int, int, int, str]]
    """(micro-batch, row, number in the row, name) of each segment."""
    platform: dict[str, str]
    """What the bits of a result depend on beside all this."""


class BadSteps:
    """The bad updates of one run.

    Args:
        folder: of the run's; made with the first.
        most: that are kept. Later ones are left out: they often follow from the first.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self.folder, self._most = folder, most

    def save(self, minibatch: Minibatch, weights: Any, facts: BadStep) -> Path | None:
        """Write one.

        Args:
            minibatch: what it was made from.
            weights: what is trained, in the model's own types, as it was then.
            facts: without the segments.

        Returns:
            Its folder; ``None`` where enough are kept already.

        Raises:
            OSError: it could not be written.
        """
        found = list(self.folder.glob("step-*"))
        if len(found) >= self._most:
            return None
        name = f"step-{facts.step:06d}"
        same = sum(path.name.startswith(name) for path in found)
        folder = self.folder / (f"{name}-{same + 1}" if same else name)
        folder.mkdir(parents=True)
        with (folder / ROWS).open("wb") as file:
            np.savez(file, **named_arrays(minibatch.rows))  # pyright: ignore[reportArgumentType]
        save_arrays(folder.absolute() / WEIGHTS / PARAMETERS, weights)()
        facts = msgspec.structs.replace(facts, segments=places_of(minibatch))
        (folder / FACTS).write_bytes(msgspec.json.format(msgspec.json.encode(facts), indent=2))
        return folder

    def forget(self, *, after: int) -> None:
        """Remove those of later steps: a run that goes on before them makes them again."""
        for path in self.folder.glob("step-*"):
            if int(path.name.split("-")[1]) > after:
                shutil.rmtree(path)


def bad_steps_of(run: Path | None, config: TrainerConfig) -> BadSteps | None:
    """Where those of a run are kept, beside its commits.

    Args:
        run: its folder; ``None`` where nothing is kept.
        config: how many are.
    """
    return None if run is None else BadSteps(run / "bad-steps", config.max_bad_steps)


def read_bad_step(folder: Path) -> tuple[BadStep, list[Rows]]:
    """What was saved, without the weights.

    Args:
        folder: of the bad step, or the ``bad.json`` in it.

    Raises:
        LookupError: there is none, or it is torn.
        ValueError: it is damaged, or of another version.
    """
    folder = folder.parent if folder.name == FACTS else folder
    if not (folder / FACTS).is_file():
        raise LookupError(
            f"expected a bad step with a {FACTS}, got '{folder}'; give a folder such as runs/NAME/bad-steps/step-000012"
        )
    try:
        facts = msgspec.json.decode((folder / FACTS).read_bytes(), type=BadStep)
    except msgspec.DecodeError as error:
        raise ValueError(f"expected a bad step of this version in {folder / FACTS}, got {error}") from error
    with np.load(folder / ROWS) as arrays:
        named = {name: arrays[name] for name in arrays.files}
    count = len({name.partition(".")[0] for name in named})
    return facts, [
        Rows(**{field: named[f"{at}.{field}"] for field in Rows._fields if f"{at}.{field}" in named}) for at in range(count)
    ]


def describe(
    step: int, update: Updated, bound: float, version: int, temperature: float, config: TrainerConfig, loss: Loss
) -> BadStep:
    """What there is to say of a bad update, but for its segments."""
    return BadStep(
        step=step,
        minibatch=update.minibatch,
        reason=str(update.reason),
        loss=update.loss.hex(),
        grad_norm=update.grad_norm.hex(),
        bound=bound.hex(),
        divisor=update.divisor,
        version=version,
        temperature=temperature,
        config=config.model_dump(mode="json"),
        loss_name=type(loss).__name__,
        loss_config=loss_settings(loss),
        segments=[],
        platform=platform(),
    )


def loss_settings(loss: Loss) -> Any:
    """Settings of a loss, to compare; its ``repr`` where it is no pydantic config."""
    return loss.model_dump(mode="json") if isinstance(loss, BaseModel) else repr(loss)


def platform() -> dict[str, str]:
    """What the bits of a result depend on beside program and arguments."""
    device = jax.devices()[0]
    return {"jax": jax.__version__, "device": f"{device.device_kind} ({device.platform})"}


def bad_step_error(step: int, update: Updated, bound: float, folder: Path | None) -> BadStepError:
    """The error that ends a run."""
    wanted = "a finite loss and gradient" if update.reason == "not_finite" else f"a gradient norm of at most {bound:g}"
    kept = "" if folder is None else f"; headrace replay-batch {folder} repeats it"
    return BadStepError(
        f"expected {wanted}, got loss {update.loss:g} and norm {update.grad_norm:g}, in step {step} of the trainer{kept}; "
        "look at its rewards and log-probabilities, or set on_bad_step='skip' to leave such updates out"
    )


def exact(text: str) -> float:
    """The number that ``float.hex`` wrote."""
    return float.fromhex(text)


def same_bits(first: float, second: float) -> bool:
    """Whether two numbers are one; NaN is NaN."""
    return first == second or (math.isnan(first) and math.isnan(second))


def named_arrays(rows: Sequence[Rows]) -> Mapping[str, np.ndarray]:
    """The arrays of micro-batches, each as its number and its name: ``0.ids``."""
    return {
        f"{at}.{field}": array
        for at, block in enumerate(rows)
        for field, array in zip(Rows._fields, block, strict=True)
        if array is not None
    }


def places_of(minibatch: Minibatch) -> list[tuple[int, int, int, str]]:
    """Where each segment lies, found again by what is in it: rows do not say whose they are."""
    names: dict[bytes, list[str]] = {}
    for segment in (segment for batch in minibatch.batches for segment in batch.segments):
        advantages = np.zeros(len(segment.ids)) if segment.advantages is None else segment.advantages
        names.setdefault(_print_of(segment.ids, segment.mask, advantages), []).append(segment.name)
    found = []
    for at, block in enumerate(minibatch.rows):
        for row, numbers in enumerate(block.segments):
            for number in range(1, int(numbers.max(initial=0)) + 1):
                there = numbers == number
                if there.any():  # pairs leave numbers out
                    print_of = _print_of(block.ids[row, there], block.mask[row, there], block.advantages[row, there])
                    found.append((at, row, number, names[print_of].pop(0)))
    return found


def _print_of(ids: np.ndarray, mask: np.ndarray, advantages: np.ndarray) -> bytes:
    """What tells a segment from others; those with one print are equal."""
    return ids.astype(np.int32).tobytes() + mask.tobytes() + advantages[mask].astype(np.float32).tobytes()
