"""Rows of ``samples.jsonl``: a few whole episodes a step, token by token. Makes them; ``folder.py`` writes them.

Made on the trainer's thread, where a step ends, and written on the loop with the row of the step, so that a run that goes on
has them as often as the step: once. Columns of a row have an entry for each token; ``None`` where there is none.
"""

from collections import deque
from collections.abc import Callable

import msgspec
import numpy as np

from graphs.runs.json_rows import encode
from graphs.runs.token_text import token_kinds, token_texts
from stages.train.samples import Sampled


class SampleRow(msgspec.Struct, frozen=True):
    """One episode. Columns are of its tokens."""

    attempt: int
    phase: str
    step: int
    """That trained it, from 1."""
    task: str
    birth: int
    member: int
    retry: int
    status: str
    error: str | None
    reward: float | None
    parts: dict[str, float]
    answer: str | None
    text: list[str]
    """What each token reads as; empty for all but the last of several that make one character."""
    kind: str
    """A letter for each token, see ``token_text``."""
    behaviour: list[float | None]
    """Log-probability under what it was sampled from."""
    trainer: list[float | None]
    """The same under the trainer's parameters, see ``stages.train.samples``."""
    advantage: list[float | None]
    version: list[int | None]
    """Of the weights that sampled it."""


class SampleRows:
    """Rows on their way to the file of one run.

    Args:
        decode: any ids as text.
        attempt: number of the start of the run.
        most: bytes that the file may grow to. Where a phase has a number of steps, no step gets ahead of its share.
        size: bytes that it has.
    """

    def __init__(self, decode: Callable[[np.ndarray], str], attempt: int, most: int, size: int) -> None:
        self._decode, self._attempt, self._most = decode, attempt, most
        self._phase, self._total = "", 0
        self._ready: deque[tuple[int, bytes]] = deque()
        self.size = size

    def begin(self, phase: str, total: int | None) -> None:
        """Rows are of this phase from now on, which has so many steps; ``None`` where nobody knows."""
        self._phase, self._total = phase, total or 0
        self._ready.clear()

    def take(self, sampled: Sampled) -> None:
        """An episode is complete; see ``stages.train.samples``."""
        share = self._most * min(sampled.step / self._total, 1.0) if self._total else self._most
        if self.size < share:
            self._ready.append((sampled.step, encode(self._row(sampled)) + b"\n"))

    def of_step(self, step: int) -> bytes:
        """Lines of a step, and of those before it that were not asked for."""
        lines = b""
        while self._ready and self._ready[0][0] <= step:
            lines += self._ready.popleft()[1]
        self.size += len(lines)
        return lines

    def _row(self, sampled: Sampled) -> SampleRow:
        episode = sampled.episode
        texts = token_texts(self._decode, episode.ids)
        return SampleRow(
            attempt=self._attempt,
            phase=self._phase,
            step=sampled.step,
            task=episode.task.id,
            birth=episode.birth,
            member=episode.member,
            retry=episode.retry,
            status=episode.status.value,
            error=episode.error,
            reward=episode.reward,
            parts=episode.parts,
            answer=episode.task.answer,
            text=texts,
            kind=token_kinds(episode, texts),
            behaviour=_column(episode.logprobs, episode.mask),
            trainer=_column(sampled.trainer, episode.mask),
            advantage=_column(sampled.advantages, episode.mask),
            version=[int(version) if known else None for version, known in zip(episode.versions, episode.mask, strict=True)],
        )


def _column(values: np.ndarray, mask: np.ndarray) -> list[float | None]:
    """Values of sampled tokens with six digits, which is what float32 knows of them."""
    known = mask & np.isfinite(values)
    return [float(f"{value:.6g}") if there else None for value, there in zip(values, known, strict=True)]
