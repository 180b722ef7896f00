"""A few whole episodes of each step, for people to read, with what the trainer makes of their tokens. Changes nothing.

The trainer's log-probabilities are those that its gradient computes anyway, so they are of the parameters that the gradient is
of: those at the beginning of the step, where a step has one update or the loss reads them; in a later minibatch of a step,
those that the updates before it left. An episode of a group that says nothing is in no gradient and has none.

Chosen are, of each step, the first groups in birth order that train something, and of each a member by chance, the same one
whenever the run is repeated. Where too few train anything, groups that do not make up the number. So what is shown is no
picture of how often something happens: that is for the rows of metrics.

Groups are offered on the loop; all else is called on the trainer's thread.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from stages.batches.rows import Rows
from stages.records import Batch, Episode, Group

MOST_WAITING = 64
"""Episodes on their way to the trainer that are kept: the oldest."""


class Sampled(msgspec.Struct, frozen=True, eq=False):
    """One episode of a step."""

    step: int
    """From 1."""
    episode: Episode
    trainer: np.ndarray
    """float32 [T]: log-probability under the trainer's parameters of each token with a gradient; NaN elsewhere."""
    advantages: np.ndarray
    """float32 [T], as the loss read them; 0 where nothing was trained."""


@dataclass
class _Part:
    """A stretch of an episode that is to be found in the rows of a step: what is trained of one of its rows."""

    start: int
    ids: np.ndarray
    mask: np.ndarray


@dataclass
class _Chosen:
    episode: Episode
    trainer: np.ndarray
    advantages: np.ndarray
    missing: list[_Part] = field(default_factory=list[_Part])


class Samples:
    """Chooses episodes and gathers what there is to know of them. Nothing is chosen before somebody is attached."""

    def __init__(self) -> None:
        self._wanted = 0
        self._take: Callable[[Sampled], None] = lambda sampled: None
        self._waiting: dict[int, tuple[Episode, np.ndarray]] = {}
        self._chosen: list[_Chosen] = []
        self._silent: list[_Chosen] = []
        self._newest = -1

    def attach(self, wanted: int, take: Callable[[Sampled], None]) -> None:
        """Choose so many episodes of each step from now on, and hand them over when the step is done."""
        self._wanted, self._take = wanted, take

    def begin(self) -> None:
        """Another graph begins, whose groups are numbered from 0 again."""
        self._waiting.clear()
        self._chosen, self._silent, self._newest = [], [], -1

    def offer(self, group: Group) -> None:
        """A group with advantages is on its way to the trainer."""
        if not self._wanted or group.advantages is None or group.live is None or len(self._waiting) >= MOST_WAITING:
            return
        pairs = [
            (episode, advantages)
            for episode, advantages, live in zip(group.episodes, group.advantages, group.live, strict=True)
            if live and episode.status.rule.trains
        ]
        telling = [pair for pair in pairs if np.any(pair[1])] or pairs
        if telling:
            self._waiting[group.birth] = telling[np.random.default_rng(group.birth).integers(len(telling))]

    def add(self, batch: Batch) -> None:
        """The trainer got a batch: choose an episode of it, where the step wants one more."""
        self._newest = max(self._newest, batch.birth)
        found = self._waiting.pop(batch.birth, None)
        if found is None:
            return
        episode, advantages = found
        unknown = np.full(len(episode.ids), np.nan, np.float32)
        chosen = _Chosen(episode, unknown, np.array(advantages, np.float32), list(_parts(episode)))
        if batch.units and len(self._chosen) < self._wanted:
            self._chosen.append(chosen)
        elif not batch.units and len(self._silent) < self._wanted:
            self._silent.append(chosen)

    def scored(self, rows: Rows, logprobs_NL: Any) -> None:
        """The gradient of a micro-batch was taken.

        Args:
            rows: of it.
            logprobs_NL: of its targets, under the parameters that the gradient is of; on any device.
        """
        for chosen in self._chosen:
            for part in list(chosen.missing):
                place = _place_of(part, rows)
                if place is not None:
                    chosen.missing.remove(part)
                    # Found once or twice in a step: only then is anything moved to the host.
                    _note(chosen, part, place, rows, np.asarray(logprobs_NL if rows.proximal is None else rows.proximal))

    def finish(self, step: int) -> None:
        """A step is done."""
        for chosen in [*self._chosen, *self._silent][: self._wanted]:
            self._take(Sampled(step, chosen.episode, chosen.trainer, chosen.advantages))
        self._chosen, self._silent = [], []
        # What was dropped on its way never comes; what is late is not needed.
        for birth in list(self._waiting):
            if birth <= self._newest:
                self._waiting.pop(birth, None)


def _parts(episode: Episode) -> Iterator[_Part]:
    """The trained rows up to their last target, as ``stages.batches.pack`` cuts them."""
    for row in episode.all_rows:
        targets = np.flatnonzero(episode.mask[row.start : row.stop])
        if row.trained and len(targets):
            span = slice(row.start, row.start + int(targets[-1]) + 1)
            yield _Part(row.start, episode.ids[span], episode.mask[span])


def _place_of(part: _Part, rows: Rows) -> tuple[int, int] | None:
    """(row, first place) of a segment that reads as the part does; those that read alike have the same numbers."""
    length, width = len(part.ids), rows.ids.shape[1]
    for row, start in np.argwhere((rows.positions == 0) & (rows.segments > 0)):
        stop, number = start + length, rows.segments[row, start]
        if stop > width or rows.segments[row, stop - 1] != number or (stop < width and rows.segments[row, stop] == number):
            continue
        span = slice(start, stop)
        if np.array_equal(rows.ids[row, span], part.ids) and np.array_equal(rows.mask[row, span], part.mask):
            return int(row), int(start)
    return None


def _note(chosen: _Chosen, part: _Part, place: tuple[int, int], rows: Rows, logprobs_NL: np.ndarray) -> None:
    row, start = place
    there, here = slice(start, start + len(part.ids)), slice(part.start, part.start + len(part.ids))
    chosen.trainer[here] = np.where(part.mask, logprobs_NL[row, there], np.nan)
    chosen.advantages[here] = np.where(part.mask, rows.advantages[row, there], 0.0)
