"""From the members of a group to segments that can be packed into rows, and from what rows gave back to members. Pure.

Each target carries its place among all tokens of the members in ``Segment.versions``, which packing keeps wherever it lays a
segment; so nothing here knows how rows are filled.

Axes: T tokens of one episode, N rows of a batch, L length of a row.
"""

from collections.abc import Sequence

import numpy as np

from stages.batches.rows import Rows, Unit
from stages.records import Episode, Segment


def is_scored(episode: Episode) -> bool:
    """Whether a model is asked about it: not where it failed, or sampled nothing."""
    return not episode.status.failed and episode.num_sampled > 0


def units_of(episodes: Sequence[Episode], row_length: int, who: str) -> list[Unit]:
    """A unit for each row with sampled tokens, cut behind the last of them.

    Args:
        episodes: to score.
        row_length: most tokens of a row.
        who: the stage, for errors.

    Raises:
        ValueError: a row is too long, or begins with a sampled token, which nothing predicts.
    """
    units: list[Unit] = []
    start = 0
    for episode in episodes:
        for row in episode.all_rows:
            sampled = np.flatnonzero(episode.mask[row.start : row.stop])
            if sampled.size == 0:
                continue
            span = slice(row.start, row.start + int(sampled[-1]) + 1)
            places = np.arange(start + span.start, start + span.stop, dtype=np.int32)
            segment = Segment(episode.ids[span], episode.mask[span], versions=places, name=_name(episode))
            _check(segment, row_length, who)
            units.append((segment,))
        start += len(episode.ids)
    return units


def put(flat: np.ndarray, rows: Rows, scores_NL: np.ndarray) -> None:
    """Write the scores of the targets of a batch to their places in ``flat``, float32 [all tokens of all members], in place."""
    flat[rows.versions[rows.mask]] = scores_NL[rows.mask]


def cut(flat: np.ndarray, episodes: Sequence[Episode]) -> list[np.ndarray]:
    """What belongs to each episode, float32 [T]."""
    ends = np.cumsum([len(episode.ids) for episode in episodes])
    return np.split(flat, ends[:-1])


def problem_of(episode: Episode, scores: np.ndarray, who: str) -> str | None:
    """One line where a sampled token has no finite score; ``None`` for a sound episode."""
    broken = np.flatnonzero(episode.mask & ~np.isfinite(scores))
    if broken.size == 0:
        return None
    at = int(broken[0])
    return f"{who}: expected a finite number for each sampled token, got {scores[at]} at position {at}"


def _name(episode: Episode) -> str:
    return f"episode {episode.birth}.{episode.member}"


def _check(segment: Segment, row_length: int, who: str) -> None:
    if len(segment.ids) > row_length:
        raise ValueError(
            f"{segment.name}: expected at most row_length={row_length} tokens, got {len(segment.ids)} (scoring, {who}); raise "
            "row_length there, or lower the token or turn budget of the agent"
        )
    if segment.mask[0]:
        raise ValueError(
            f"{segment.name}: expected a context before the first sampled token, got one at position 0 (scoring, {who}); "
            "start each row with a prompt of at least one token"
        )
