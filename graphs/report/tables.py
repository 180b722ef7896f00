"""What of a report is numbers and words: headline, ledger, time shares, ends of episodes, settings, starts. Pure; no markup."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphs.report.axes import percent, short
from graphs.report.record import Row, RunRecord, number
from stages.records import STATUS_RULES, Status

STATES = (("work", "work"), ("input_wait", "waits for input"), ("ticket_wait", "waits for a ticket"),
          ("pool_wait", "waits for a pool"), ("output_wait", "waits for room"))  # fmt: skip
"""Time of workers, as ``summary.json`` names it, and for people; in the order of their colours."""
MOST_ALERTS = 50


@dataclass(frozen=True)
class Fact:
    """A figure of the headline.

    Attributes:
        label: what it is.
        value: the figure.
        detail: said below it; empty for nothing.
    """

    label: str
    value: str
    detail: str = ""


@dataclass(frozen=True)
class LedgerRow:
    """What went into a stage, and where it is.

    Attributes:
        stage: its name.
        taken: inputs.
        emitted: outputs.
        lost: inputs dropped, and members given up, by reason.
        retried: failures that were tried again.
        held: items at each place in it; empty where nothing is left over.
    """

    stage: str
    taken: int
    emitted: int
    lost: Mapping[str, int]
    retried: int
    held: Mapping[str, int]


@dataclass(frozen=True)
class EndRow:
    """How many episodes ended in one way.

    Attributes:
        status: see ``stages.records.Status``.
        meaning: in a line.
        count: episodes.
        share: of all that ended.
        failed: whether it says nothing about the policy.
    """

    status: str
    meaning: str
    count: int
    share: float
    failed: bool


def status_of(record: RunRecord) -> str:
    """How the run ended, or that it has not."""
    if record.ended:
        return str(record.summary.get("status", "unknown"))
    return "not ended" if record.rows or record.attempts else "not begun"


def headline(record: RunRecord) -> list[Fact]:
    """The figures that a reader wants first; those that are not known are left out."""
    summary, rows = record.summary, record.trainings.get(record.main or "", ())
    return list(_facts(record, summary, rows))


def _facts(record: RunRecord, summary: Row, rows: Sequence[Row]) -> Iterator[Fact]:
    yield from _scores(summary)
    if rows:
        last = rows[-1]
        yield Fact("Steps", f"{last['step']:,}", f"of {record.main}".replace("_", " "))
        reward = number(last.get("reward_mean"))
        if reward is not None:
            first = number(rows[0].get("reward_mean"))
            yield Fact("Reward", short(reward), f"{short(first)} in the first step" if first is not None else "")
    goodput = number(summary.get("goodput"))
    if goodput is None and rows:
        goodput = _total_goodput(rows)
    if goodput is not None:
        yield Fact("Goodput", percent(goodput), "trained of sampled tokens")
    episodes = ends(record)
    if episodes:
        total, failed = sum(row.count for row in episodes), sum(row.count for row in episodes if row.failed)
        yield Fact("Episodes", f"{total:,}", f"{failed:,} failed, {percent(failed / total)}" if failed else "none failed")
    if number(summary.get("lag_max")) is not None:
        bound = summary.get("max_lag")
        yield Fact("Lag", f"{short(float(summary['lag_mean'] or 0))}", f"at most {summary['lag_max']}, bound {bound}")
    if number(summary.get("wall_s")) is not None:
        trained = number(summary.get("train_s"))
        yield Fact("Time", clock(summary["wall_s"]), f"{clock(trained)} in the main phase" if trained else "")
    elif record.health and (seconds := number(record.health[-1]["seconds"])) is not None:
        yield Fact("Time", clock(seconds), "so far")
    if number(summary.get("peak_rss_mb")) is not None:
        yield Fact("Host memory", f"{short(summary['peak_rss_mb'])} MB", "at its peak")


def _scores(summary: Row) -> Iterator[Fact]:
    before, after = number(summary.get("heldout_before")), number(summary.get("heldout_after"))
    latest = after if after is not None else number(summary.get("heldout"))
    name = "heldout_after" if after is not None else "heldout"
    if latest is not None:
        start = f"{percent(before)} before, " if before is not None and after is not None else ""
        yield Fact("Held-out success", percent(latest), start + _interval(summary.get(f"{name}_detail")))
    elif before is not None:
        yield Fact("Held-out before", percent(before), _interval(summary.get("heldout_before_detail")))


def _interval(detail: Any) -> str:
    if not isinstance(detail, Mapping) or number(detail.get("low")) is None or number(detail.get("high")) is None:
        return ""
    return f"interval {percent(detail['low'])} to {percent(detail['high'])}"


def _total_goodput(rows: Sequence[Row]) -> float | None:
    sampled = sum(number(row.get("sampled_tokens")) or 0 for row in rows)
    return sum(number(row.get("trained_tokens")) or 0 for row in rows) / sampled if sampled else None


def ledger(record: RunRecord) -> list[LedgerRow]:
    """A row for each stage of the main phase, once it is over."""
    leftovers = _mapping(record.summary.get("leftovers"))
    return [
        LedgerRow(
            stage=name,
            taken=node.get("taken", 0),
            emitted=node.get("emitted", 0),
            lost={**_mapping(node.get("dropped")), **_mapping(node.get("lost"))},
            retried=node.get("retried", 0),
            held={place: count for place, count in leftovers.items() if _belongs(place, name)},
        )
        for name, node in _mapping(record.summary.get("stages")).items()
    ]


def _belongs(place: str, stage: str) -> bool:
    """Whether a place, ``stage (what)`` or an edge ``from->stage``, is a stage's."""
    return place.startswith(f"{stage} (") or place.endswith(f"->{stage}")


def time_shares(record: RunRecord) -> list[tuple[str, list[tuple[str, int, float]]]]:
    """Of each stage the parts of its workers' time: (state, number of its colour, share)."""
    return [
        (name, [(label, color, share) for color, (state, label) in enumerate(STATES)
                if (share := number(node.get(f"{state}_share")) or 0.0) >= 0.0005])
        for name, node in _mapping(record.summary.get("stages")).items()
    ]  # fmt: skip


def ends(record: RunRecord) -> list[EndRow]:
    """How episodes ended: all attempts, retries included; before the end of a run those that the steps told of.

    Failures are part of what shares are of.
    """
    counts: Counter[str] = Counter(_mapping(record.summary.get("episodes"))) if record.ended else Counter()
    if not counts:
        for row in record.trainings.get(record.main or "", ()):
            counts.update({status.value: int(number(row.get(f"episodes_{status}")) or 0) for status in Status})
    if not counts:
        counts.update(_mapping(_mapping(record.summary.get("heldout_detail")).get("statuses")))
    total = counts.total()
    return [
        EndRow(status.value.replace("_", " "), STATUS_RULES[status].meaning, count, count / total, status.failed)
        for status in Status if (count := counts.get(status.value, 0))
    ]  # fmt: skip


@dataclass(frozen=True)
class AlertRow:
    """An alert that was raised or cleared, as text."""

    time: str
    rule: str
    state: str
    value: str
    of: str


def alerts(record: RunRecord) -> list[AlertRow]:
    """The latest ``MOST_ALERTS`` of the run."""
    return [
        AlertRow(
            str(row.get("time", ""))[:19].replace("T", " "), str(row.get("alert", "")), str(row.get("state", "")),
            short(value) if (value := number(row.get("value"))) is not None else str(row.get("value", "")),
            str(row.get("of_stage", "")),
        )
        for row in record.alerts[-MOST_ALERTS:]
    ]  # fmt: skip


def warnings(record: RunRecord) -> list[tuple[str, int]]:
    """Each kind of warning, which may differ in numbers: the first one, and how many there were."""
    found: dict[str, tuple[str, int]] = {}
    for rows in record.rows.values():
        for row in rows:
            text = str(row.get("warning") or "")
            if text:
                kind = re.sub(r"\d+", "#", text)
                first, count = found.get(kind, (text, 0))
                found[kind] = first, count + 1
    return list(found.values())[:MOST_ALERTS]


def sources(record: RunRecord) -> list[tuple[str, int, int, Mapping[str, int]]]:
    """(source, tasks drawn, trained, ends by how) of each source of tasks."""
    return [
        (name, told.get("drawn", 0), told.get("trained", 0), _mapping(told.get("ends")))
        for name, told in _mapping(record.summary.get("sources")).items()
    ]


def flattened(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Path and value of each setting, in their order."""
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from flattened(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", "none" if value is None or value == {} else str(value)


def settings(record: RunRecord) -> list[tuple[str, str]]:
    """Settings and options of the run."""
    config, options = _mapping(record.config.get("config")), _mapping(record.config.get("options"))
    return [*flattened(config), *flattened(options, "options.")]


def environment(record: RunRecord) -> list[tuple[str, str]]:
    """What the run depended on beside its settings."""
    return list(flattened(_mapping(record.summary.get("versions"))))


def starts(record: RunRecord) -> list[tuple[int, str, str, Sequence[str]]]:
    """(number, time, what it went on from, what was changed) of each start of the run."""
    return [
        (
            int(row.get("attempt", at)),
            str(row.get("time", ""))[:19].replace("T", " "),
            "the beginning" if row.get("commit") is None else f"commit {row['commit']}",
            [str(change) for change in row.get("changes", ())],
        )
        for at, row in enumerate(record.attempts)
    ]


def clock(seconds: float) -> str:
    """A time for people: 58.2 s, 12.5 min, 3.4 h."""
    for bound, unit in ((3600.0 * 2, "h"), (120.0, "min")):
        if seconds >= bound:
            return f"{seconds / (3600 if unit == 'h' else 60):.1f} {unit}"
    return f"{seconds:.1f} s"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
