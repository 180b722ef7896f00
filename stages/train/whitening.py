"""Advantages of a whole step made to have mean 0 and deviation 1 over its trained tokens. Pure.

The rule is in ``stages.advantages.reinforce_pp``; here it meets batches, since the trainer alone has all of a step.
"""

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from stages.advantages.reinforce_pp import whiten
from stages.losses.tokens import Needs
from stages.records import Batch, Segment


def with_silent(needs: Needs) -> Needs:
    """What batches that are to be whitened must hold: a token with an advantage of 0 has another one afterwards."""
    return msgspec.structs.replace(needs, silent=True)


def whitened(batches: Sequence[Batch]) -> list[Batch]:
    """The batches of a step with their advantages whitened over all targets.

    Raises:
        ValueError: a batch lacks targets of a live episode: a group's mean would be over some of its tokens only.
    """
    for batch in batches:
        _check(batch)
    segments = [segment for batch in batches for segment in batch.segments]
    if not segments:
        return list(batches)
    given = [_advantages(segment) for segment in segments]
    white = whiten(np.concatenate(given), np.concatenate([segment.mask for segment in segments]))
    parts = iter(np.split(white, np.cumsum([len(values) for values in given])[:-1]))
    return [msgspec.structs.replace(batch, units=_with(batch, parts)) for batch in batches]


def without_silent(batches: Sequence[Batch]) -> list[Batch]:
    """The batches less the units in which no target has an advantage, as ``Pack`` leaves them out where nothing is whitened.

    For losses without a gradient there (``needs.silent``): what is left decides whether there is anything to update, and what
    counts as trained. Divisors stay.
    """
    return [msgspec.structs.replace(batch, units=tuple(filter(_says_something, batch.units))) for batch in batches]


def _says_something(unit: Sequence[Segment]) -> bool:
    return any(np.any(_advantages(segment)[segment.mask]) for segment in unit)


def _with(batch: Batch, parts: Iterator[np.ndarray]) -> tuple[tuple[Segment, ...], ...]:
    return tuple(tuple(msgspec.structs.replace(segment, advantages=next(parts)) for segment in unit) for unit in batch.units)


def _advantages(segment: Segment) -> np.ndarray:
    if segment.advantages is None:
        raise ValueError(f"{segment.name}: expected advantages to whiten, got None, in the trainer; leave whiten out")
    return segment.advantages


def _check(batch: Batch) -> None:
    live = sum(row.num_sampled - row.num_untrained for row in batch.episodes if row.live and row.status.rule.trains)
    if batch.episodes and live != batch.num_targets:
        raise ValueError(
            f"group {batch.birth}: expected all {live} sampled tokens of its live episodes, since whitening moves those with "
            f"an advantage of 0 too; got {batch.num_targets}, in the trainer; give Pack with_silent(needs)"
        )
