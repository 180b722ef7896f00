"""Figures of a training, from what its process told: the same rules for every system, in one place. Pure.

A group is complete where each of its members has an episode that ended before the update it was trained in. Rates are of the
time from the end of the last update of the warm-up to the end of the last update. ``None`` is what was not measured.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

Event = Mapping[str, Any]
SAME = 1e-9
"""Rewards closer than this are the same."""


@dataclass(frozen=True)
class Figures:
    """Of one training.

    Attributes:
        updates: that were made.
        groups_per_minute: complete groups that were trained.
        trained_per_minute: groups that were trained, those with a member that failed included.
        first_update_s: from the start of the process to the end of the first update.
        idle: share of the time in which the trainer did not work.
        distinct: different samples in a complete group, mean over the training: by what the world was told; a turn that was
            cut is not among it.
        tokens_per_s: sampled.
        tokens_per_turn: sampled, mean over the training.
        signal_per_hour: samples of complete groups that were trained with an advantage other than 0.
        compiled: programs, in all; ``None`` where nothing is compiled.
        compiled_later: of these in the measured time.
        failed: episodes that failed.
        again: of these tried again, to the end.
        rewards: mean of the complete groups of each update.
        broke: what ended the training before its time, in the system's words.
    """

    updates: int
    groups_per_minute: float | None
    trained_per_minute: float | None
    first_update_s: float | None
    idle: float | None
    distinct: float | None
    tokens_per_s: float | None
    tokens_per_turn: float | None
    signal_per_hour: float | None
    compiled: int | None
    compiled_later: int | None
    failed: int
    again: int
    rewards: Sequence[float | None]
    broke: str | None


@dataclass(frozen=True)
class _Update:
    at: float
    groups: Sequence[Sequence[Event] | None]
    """Ends of the members of each group, ``None`` for one that is not complete."""


def figures(events: Sequence[Event], spawned: float, group_size: int, warm: int) -> Figures:
    """Of what a process told.

    Args:
        events: in the order in which they happened.
        spawned: when its process was started, on the clock of the events.
        group_size: members of a group.
        warm: updates of the warm-up.

    Raises:
        ValueError: an update is of a task that no episode was about.
    """
    updates = list(_updates(events, group_size))
    complete = [group for update in updates for group in update.groups if group is not None]
    turns = [event["tokens"] for event in events if event["event"] == "sampled"]
    said = sum(len(event["said"]) for event in events if event["event"] == "episode_end")
    compiled = [event["t"] for event in events if event["event"] == "compiled"]
    failed, again = _failed(events)
    span = (updates[warm - 1].at, updates[-1].at) if len(updates) > warm else None
    measured = updates[warm:]
    whole = [group for update in measured for group in update.groups if group is not None]
    seconds = span[1] - span[0] if span else None

    def per(count: float, seconds_of_unit: float) -> float | None:
        return None if seconds is None else seconds_of_unit * count / seconds

    return Figures(
        updates=len(updates),
        groups_per_minute=per(len(whole), 60.0),
        trained_per_minute=per(sum(len(update.groups) for update in measured), 60.0),
        first_update_s=updates[0].at - spawned if updates else None,
        idle=None if span is None else 1.0 - _busy(events, span) / (span[1] - span[0]),
        distinct=_mean([len({tuple(event["said"]) for event in group}) for group in complete]),
        tokens_per_s=per(_within(events, span, "sampled", "tokens"), 1.0),
        tokens_per_turn=sum(turns) / said if said else None,
        signal_per_hour=per(sum(_signal(group) for group in whole), 3600.0),
        compiled=len(compiled) or None,
        compiled_later=sum(span[0] < at <= span[1] for at in compiled) if span and compiled else None,
        failed=failed,
        again=again,
        rewards=[_mean([event["reward"] for group in one.groups if group for event in group]) for one in updates],
        broke=next((str(event["error"]) for event in events if event["event"] == "broke"), None),
    )


def _updates(events: Sequence[Event], group_size: int) -> Iterator[_Update]:
    known = {event["task"] for event in events if "task" in event}
    trained = {task for event in events if event["event"] == "updated" for task in event["tasks"]}
    if strange := sorted(trained - known):
        raise ValueError(
            f"expected updates of tasks that episodes were about; got {strange[:3]}; in the events of a system; name them alike"
        )
    ended: dict[str, dict[int, Event]] = {}
    for event in events:
        if event["event"] == "episode_end":
            ended.setdefault(event["task"], {})[event["member"]] = event
        elif event["event"] == "failure":
            ended.get(event["task"], {}).pop(event["member"], None)
        elif event["event"] == "updated":
            groups = [ended.get(task, {}) for task in event["tasks"]]
            yield _Update(event["t"], [list(group.values()) if len(group) == group_size else None for group in groups])


def _failed(events: Sequence[Event]) -> tuple[int, int]:
    """Episodes that failed, and how many of these members ended one later."""
    open_, again, count = set[tuple[str, int]](), 0, 0
    for event in events:
        if event["event"] == "failure":
            count += 1
            open_.add((event["task"], event["member"]))
        elif event["event"] == "episode_end" and (event["task"], event["member"]) in open_:
            again += 1
            open_.discard((event["task"], event["member"]))
    return count, again


def _busy(events: Sequence[Event], span: tuple[float, float]) -> float:
    """Seconds in which the trainer worked. Its spans do not overlap; one that did not end lasts to the end."""
    marks = [event for event in events if event["event"] in ("train_begin", "train_end")]
    marks.append({"event": "train_end", "t": span[1]})
    pairs = ((a["t"], b["t"]) for a, b in pairwise(marks) if a["event"] == "train_begin")
    return sum(max(0.0, min(end, span[1]) - max(start, span[0])) for start, end in pairs)


def _within(events: Sequence[Event], span: tuple[float, float] | None, event: str, field: str) -> float:
    return sum(one[field] for one in events if span and one["event"] == event and span[0] < one["t"] <= span[1])


def _signal(group: Sequence[Event]) -> int:
    mean = sum(event["reward"] for event in group) / len(group)
    return sum(abs(event["reward"] - mean) > SAME for event in group)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
