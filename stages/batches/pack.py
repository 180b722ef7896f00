"""Packing: segments into rows of one static length. Pure functions; the stage is in ``stage.py``.

Axes: T tokens of a segment, R rows, L length of a row.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from stages.records import Batch, Episode, EpisodeRow, Group, Row


class Segment(msgspec.Struct, frozen=True, eq=False):
    """Tokens that are read together, from position 0, and see no other segment."""

    ids: np.ndarray
    """int32 [T]"""
    mask: np.ndarray
    """bool [T]: targets. The first token cannot be one: nothing predicts it."""
    logprobs: np.ndarray | None = None
    """float32 [T]: behaviour log-probabilities of the targets; ``None`` where the loss reads none."""
    advantage: float = 0.0
    """Of each target."""
    versions: np.ndarray | None = None
    """int32 [T]: weight version that sampled each target; ``None`` where no policy sampled them."""
    name: str = "segment"
    """For error messages."""


def first_fit(lengths: Sequence[int], row_length: int) -> list[int]:
    """Row of each segment: the first row with room, in the order given; a new row where there is none.

    Raises:
        ValueError: a length is above ``row_length``.
    """
    free: list[int] = []
    placed = []
    for index, length in enumerate(lengths):
        if length > row_length:
            raise ValueError(f"first_fit: expected lengths of at most row_length={row_length}, got {length} at index {index}")
        row = next((row for row, room in enumerate(free) if room >= length), len(free))
        if row == len(free):
            free.append(row_length)
        free[row] -= length
        placed.append(row)
    return placed


def pack(birth: int, segments: Sequence[Segment], row_length: int, episodes: tuple[EpisodeRow, ...] = ()) -> Batch:
    """Segments packed first-fit, in the order given.

    Tokens behind the last target of a segment are left out: they change no target. A segment without targets is left out whole.

    Args:
        birth: birth number the batch is summed under.
        segments: what to pack.
        row_length: L.
        episodes: passed on for the metrics of the step.

    Returns:
        A batch of as few rows as first-fit gives, none where there is nothing to train.

    Raises:
        ValueError: a segment is longer than a row, its first token is a target, or a target has no finite log-probability.
    """
    segments = [cut for segment in segments if (cut := _up_to_last_target(segment)) is not None]
    for segment in segments:
        _check(segment, row_length)
    rows = first_fit([len(segment.ids) for segment in segments], row_length)
    batch = _empty(birth, max(rows, default=-1) + 1, row_length, episodes)
    filled, count = [0] * len(batch.ids), [0] * len(batch.ids)
    for row, segment in zip(rows, segments, strict=True):
        count[row] += 1
        _write(batch, row, filled[row], count[row], segment)
        filled[row] += len(segment.ids)
    return batch


def group_segments(group: Group, with_logprobs: bool = True) -> list[Segment]:
    """The rows of the members of a group that have a gradient, in member order, and those of a member in theirs.

    A member with an advantage of exactly 0 has none, so its tokens need no row; a failed member has no advantage but 0.

    Args:
        group: with advantages.
        with_logprobs: keep the behaviour log-probabilities; False for demonstrations, which have none.

    Raises:
        ValueError: the group has no advantages.
    """
    if group.advantages is None:
        raise ValueError(
            f"group {group.birth}: expected advantages, got None (batches.pack); put an Advantages stage in front of Pack"
        )
    return [
        Segment(
            ids=episode.ids[row.start : row.stop],
            mask=episode.mask[row.start : row.stop],
            logprobs=episode.logprobs[row.start : row.stop] if with_logprobs else None,
            advantage=float(advantage),
            versions=episode.versions[row.start : row.stop] if with_logprobs else None,
            name=f"episode {episode.birth}.{episode.member}{f' of {row.role}' if row.role else ''}",
        )
        for episode, advantage in zip(group.episodes, group.advantages, strict=True)
        if advantage != 0.0 and episode.status.rule.trains
        for row in episode.rows or (Row(0, len(episode.ids)),)
        if row.trained
    ]


def episode_row(episode: Episode) -> EpisodeRow:
    """What the metrics of the step need of an episode."""
    return EpisodeRow(
        status=episode.status,
        reward=episode.reward,
        num_sampled=episode.num_sampled,
        num_turns=len(episode.turns),
        seconds=episode.seconds,
        num_untrained=episode.num_untrained,
        num_forks=episode.num_forks,
    )


def _up_to_last_target(segment: Segment) -> Segment | None:
    targets = np.flatnonzero(segment.mask)
    if targets.size == 0:
        return None
    stop = int(targets[-1]) + 1
    logprobs = None if segment.logprobs is None else segment.logprobs[:stop]
    versions = None if segment.versions is None else segment.versions[:stop]
    return msgspec.structs.replace(
        segment, ids=segment.ids[:stop], mask=segment.mask[:stop], logprobs=logprobs, versions=versions
    )


def _check(segment: Segment, row_length: int) -> None:
    if len(segment.ids) > row_length:
        raise ValueError(
            f"{segment.name}: expected at most row_length={row_length} tokens, got {len(segment.ids)} (batches.pack); "
            "raise row_length in the configs of Pack and of Trainer, or lower the token or turn budget of the agent"
        )
    if segment.mask[0]:
        raise ValueError(
            f"{segment.name}: expected a context before the first target, got a target at position 0 (batches.pack); "
            "start the segment with a prompt of at least one token"
        )
    if segment.logprobs is not None and not np.isfinite(segment.logprobs[segment.mask]).all():
        at = int(np.flatnonzero(segment.mask & ~np.isfinite(segment.logprobs))[0])
        raise ValueError(
            f"{segment.name}: expected a finite behaviour log-probability for each sampled token, got {segment.logprobs[at]} "
            f"at position {at} (batches.pack); the engine must return log-probabilities and refuse broken logits; "
            "for demonstrations set logprobs='ignored' in the config of Pack"
        )


def _empty(birth: int, num_rows: int, row_length: int, episodes: tuple[EpisodeRow, ...]) -> Batch:
    shape = (num_rows, row_length)
    return Batch(
        birth=birth,
        ids=np.zeros(shape, np.int32),
        positions=np.zeros(shape, np.int32),
        segments=np.zeros(shape, np.int32),
        mask=np.zeros(shape, bool),
        logprobs=np.zeros(shape, np.float32),
        advantages=np.zeros(shape, np.float32),
        versions=np.full(shape, -1, np.int32),
        episodes=episodes,
    )


def _write(batch: Batch, row: int, start: int, number: int, segment: Segment) -> None:
    span = slice(start, start + len(segment.ids))
    batch.ids[row, span] = segment.ids
    batch.positions[row, span] = np.arange(len(segment.ids))
    batch.segments[row, span] = number
    batch.mask[row, span] = segment.mask
    batch.advantages[row, span] = np.where(segment.mask, segment.advantage, 0.0)
    if segment.logprobs is not None:
        batch.logprobs[row, span] = np.where(segment.mask, segment.logprobs, 0.0)
    if segment.versions is not None:
        batch.versions[row, span] = np.where(segment.mask, segment.versions, -1)
