"""What of a group is trained: its members' rows as segments, and the divisor they are summed under. Pure.

The stage is in ``stage.py``; where segments lie in rows is for ``rows.py``.

Axes: T tokens of a segment.
"""

import math
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from stages.losses.tokens import Needs
from stages.records import Batch, Episode, EpisodeRow, Group, Segment


def pack_group(group: Group, needs: Needs, max_length: int) -> Batch:
    """The segments of a group that have a gradient, in member order, and those of a member in theirs.

    With ``pair`` the group is one pair, its two members a unit, the chosen one first; where one is not live or has failed,
    there is no pair, and nothing is trained or counted.

    A target with an advantage of 0 has none, unless the loss says otherwise (``needs.silent``), so a segment of such targets is
    left out; its tokens count in the divisor all the same.

    Args:
        group: with advantages.
        needs: of the loss.
        max_length: most tokens of a segment.

    Raises:
        ValueError: the group has no advantages or is no pair where the loss wants one, a segment is too long, its first token
            is a target, or a target has no finite number where the loss reads one.
    """
    if group.advantages is None or group.live is None:
        raise ValueError(
            f"group {group.birth}: expected advantages, got None (batches.pack); put an Advantages stage in front of Pack"
        )
    returns = group.returns or (None,) * len(group.episodes)
    segments: list[Segment] = []
    divisor = 0.0
    for episode, advantages, wanted, live in zip(group.episodes, group.advantages, returns, group.live, strict=True):
        if not live or not episode.status.rule.trains:
            continue
        share, weight = shares(episode, needs)
        divisor += share
        segments += episode_segments(episode, advantages, wanted, weight, needs)
    episodes = tuple(episode_row(episode, live) for episode, live in zip(group.episodes, group.live, strict=True))
    units = [(segment,) for segment in segments]
    if needs.aggregation == "pair":
        whole = all(live and each.status.rule.trains for each, live in zip(group.episodes, group.live, strict=True))
        units, divisor = ([_pair(group, segments)], divisor) if whole else ([], 0.0)
    return make_batch(group.birth, units, divisor, max_length, episodes)


def make_batch(
    birth: int,
    units: Iterable[Sequence[Segment]],
    divisor: float | None = None,
    max_length: int | None = None,
    episodes: tuple[EpisodeRow, ...] = (),
) -> Batch:
    """Units as a batch.

    Tokens behind the last target of a segment are left out: they change no target. A unit without targets is left out whole.

    Args:
        birth: birth number the batch is summed under.
        units: segments that must share a row, together.
        divisor: see ``Batch``; ``None`` for the number of targets.
        max_length: most tokens of a unit; ``None`` for any number.
        episodes: passed on for the metrics of the step.

    Raises:
        ValueError: see ``pack_group``.
    """
    kept = []
    for unit in units:
        cut = tuple(segment for given in unit if (segment := _up_to_last_target(given)) is not None)
        for segment in cut:
            _check(segment)
        if cut:
            _check_length(cut, max_length)
            kept.append(cut)
    targets = sum(int(segment.mask.sum()) for unit in kept for segment in unit)
    return Batch(birth, tuple(kept), float(targets if divisor is None else divisor), episodes)


def shares(episode: Episode, needs: Needs) -> tuple[float, float]:
    """(what a live episode adds to the divisor, the weight of each of its targets)."""
    tokens = episode.num_sampled - episode.num_untrained
    if needs.aggregation == "token":
        return float(tokens), 1.0
    if needs.aggregation == "pair":
        return 0.5, 1.0
    if tokens == 0:
        return 0.0, 0.0
    if needs.aggregation == "sequence":
        return 1.0, 1.0 / tokens
    if needs.constant_length is None:
        raise ValueError(
            f"expected a constant_length with aggregation={needs.aggregation!r}, got None, in batches.pack; set it in the "
            "loss, to the most tokens that an episode may sample, or give Pack the packed_needs of RlConfig, which has it"
        )
    return float(needs.constant_length), 1.0


def episode_segments(
    episode: Episode, advantages: np.ndarray, returns: np.ndarray | None, weight: float, needs: Needs
) -> list[Segment]:
    """The trained rows of an episode that have a gradient."""
    optional = {
        "logprobs": episode.logprobs if needs.behaviour else None,
        "versions": episode.versions if needs.behaviour else None,
        "reference": episode.reference if needs.reference else None,
        "values": episode.values if needs.critic else None,
        "returns": returns if needs.critic else None,
    }
    missing = [
        name
        for name, asked in (("reference", needs.reference), ("values", needs.critic), ("returns", needs.critic))
        if asked and optional[name] is None
    ]
    name = f"episode {episode.birth}.{episode.member}"
    if missing:
        raise ValueError(
            f"{name}: expected {' and '.join(missing)} for a loss that reads them, got None (batches.pack); put the stage that "
            "gives them in front of Pack"
        )
    segments = []
    for row in episode.all_rows:
        span = slice(row.start, row.stop)
        mask = episode.mask[span]
        if row.trained and (needs.silent or np.any(advantages[span][mask] != 0.0)):
            cut = {key: None if array is None else array[span] for key, array in optional.items()}
            whose = f"{name}{f' of {row.role}' if row.role else ''}"
            segments.append(Segment(episode.ids[span], mask, advantages[span], **cut, weight=weight, name=whose))
    return segments


def episode_row(episode: Episode, live: bool = True) -> EpisodeRow:
    """What the metrics of the step need of an episode."""
    return EpisodeRow(
        status=episode.status,
        reward=episode.reward,
        num_sampled=episode.num_sampled,
        num_turns=len(episode.turns),
        seconds=episode.seconds,
        num_untrained=episode.num_untrained,
        num_forks=episode.num_forks,
        live=live,
        source=episode.task.source,
        difficulty=episode.task.difficulty,
    )


def _pair(group: Group, segments: Sequence[Segment]) -> tuple[Segment, ...]:
    signs = [sorted(set(np.sign(segment.advantages[segment.mask]).tolist())) for segment in segments]
    if signs != [[1.0], [-1.0]]:
        raise ValueError(
            f"group {group.birth}: expected a pair, one row with advantages above 0 and then one with advantages below, got "
            f"{len(segments)} rows with advantages of signs {signs} (batches.pack); give Pack groups of a chosen and a "
            "rejected reply, each with tokens to train, or take a loss that needs no pairs"
        )
    return tuple(segments)


def _up_to_last_target(segment: Segment) -> Segment | None:
    targets = np.flatnonzero(segment.mask)
    if targets.size == 0:
        return None
    stop = int(targets[-1]) + 1
    arrays = ("ids", "mask", "advantages", "logprobs", "versions", "reference", "values", "returns")
    cut = {name: array[:stop] for name in arrays if (array := getattr(segment, name)) is not None}
    return msgspec.structs.replace(segment, **cut)


def _check_length(unit: Sequence[Segment], max_length: int | None) -> None:
    length = sum(len(segment.ids) for segment in unit)
    if max_length is not None and length > max_length:
        raise ValueError(
            f"{unit[0].name}: expected at most row_length={max_length} tokens, got {length} (batches.pack); "
            "raise row_length in the configs of Pack and of Trainer, or lower the token or turn budget of the agent"
        )


def _check(segment: Segment) -> None:
    if segment.mask[0]:
        raise ValueError(
            f"{segment.name}: expected a context before the first target, got a target at position 0 (batches.pack); "
            "start the segment with a prompt of at least one token"
        )
    if not math.isfinite(segment.weight):
        raise ValueError(f"{segment.name}: expected a finite weight, got {segment.weight} (batches.pack)")
    for what, array in (
        ("behaviour log-probability", segment.logprobs),
        ("reference log-probability", segment.reference),
        ("value", segment.values),
        ("return", segment.returns),
    ):
        if array is not None and not np.isfinite(array[segment.mask]).all():
            at = int(np.flatnonzero(segment.mask & ~np.isfinite(array))[0])
            raise ValueError(
                f"{segment.name}: expected a finite {what} for each sampled token, got {array[at]} at position {at} "
                "(batches.pack); the engine must return log-probabilities and refuse broken logits, and a loss for "
                "demonstrations must say that it reads none"
            )
