"""The experiment ``grouping``: each policy of the barrier does what it states, and counts what it did."""

import asyncio
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict, Field

from graphs.bench.experiment import Claim, Column, Experiment, Findings, Table, Tell
from graphs.bench.grouping.cases import ALWAYS, CASES, LATE, MAX_LAG, SLOW, Case, LateCase, LateOutcome, Outcome
from graphs.bench.grouping.played import Played, ground, play, play_late


class GroupingConfig(BaseModel):
    """How long what does not answer is waited for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit_s: float = Field(default=1.0, gt=0)
    """Seconds of the deadline that a member runs into. What answers takes milliseconds, so it only needs to be above what a
    busy machine may hold that up."""


def run(config: GroupingConfig, tell: Tell) -> Findings:
    """Play every case."""
    cases, late = asyncio.run(_measured(config, tell))
    claims = [Claim(f"{_named(case)}: result and counts", str(seen.outcome), str(case.stated), "equal") for case, seen in cases]
    for case, seen in late:
        claims.append(Claim(f"late groups {_did(case)}: result and counts", str(_late(seen)), str(case.stated), "equal"))
        claims.append(Claim(f"late groups {_did(case)}: versions of lag", max(_lags(seen), default=None), MAX_LAG, "most"))
    held = sum(str(seen.outcome) == str(case.stated) for case, seen in cases)
    held += sum(str(_late(seen)) == str(case.stated) for case, seen in late)
    return Findings(
        answer=(
            f"{held} of {len(cases) + len(late)} policies gave the groups, members, drops, retries and tickets they state, "
            f"each with a real deadline of {config.limit_s:g} s; every ledger "
            f"{'balances' if all(seen.outcome.balanced for _, seen in [*cases, *late]) else 'but some balances'}."
        ),
        claims=claims,
        tables=[_table(cases), _trained(cases), _lates(late)],
        notes=[
            "Stated results were written down by hand from what the policies promise (graphs/bench/grouping/cases.py), not "
            "computed by what is tested.",
            "In groups 1 and 4 the tool of the last member does not answer, at first or in any attempt. Where such a group is "
            "dropped its ticket opens another in the same step, so that six groups are trained in any case.",
            "What is said comes from a script, with the log-probabilities of the weights in force; graph, barrier, deadlines, "
            "rewards, advantages and trainer are the real ones.",
            "To shrink, and to drop what is late, biases training against what takes long; they are counted, not free.",
        ],
    )  # fmt: skip


async def _measured(config: GroupingConfig, tell: Tell) -> tuple[list[tuple[Case, Played]], list[tuple[LateCase, Played]]]:
    cases: list[tuple[Case, Played]] = []
    late: list[tuple[LateCase, Played]] = []
    total, here = len(CASES) + len(LATE), ground()
    async with here.parts.engine:
        for case in CASES:
            tell(len(cases), total, _named(case))
            cases.append((case, await play(case, here, config.limit_s)))
        for case in LATE:
            tell(len(cases) + len(late), total, f"late groups {_did(case)}")
            late.append((case, await play_late(case, here)))
    return cases, late


def _named(case: Case) -> str:
    whose = ", deadline of the node" if case.deadline == "node" else ""
    return f"{case.name}, {_fails(case)}{whose}"


def _fails(case: Case) -> str:
    return "fails always" if case.attempts == ALWAYS else f"fails {'once' if case.attempts == 1 else 'twice'}"


def _did(case: LateCase) -> str:
    return "waited for" if case.late == "wait" else "dropped"


def _late(seen: Played) -> LateOutcome:
    found = seen.outcome
    return LateOutcome(SLOW in found.trained, found.dropped, found.returned, found.opened, found.balanced)


def _lags(seen: Played) -> list[int]:
    return [lag for lag in seen.lags.values() if lag is not None]


def _table(cases: Sequence[tuple[Case, Played]]) -> Table:
    rows = []
    for case, seen in cases:
        row = {"policy": case.name, "member": _fails(case), "deadline": case.deadline}
        rows.append(row | {"which": "stated"} | _cells(case.stated))
        rows.append(row | {"which": "seen", "seconds": seen.seconds} | _cells(seen.outcome))
    columns = [
        Column("policy", "policy"), Column("member", "the member"), Column("deadline", "deadline of"), Column("which", ""),
        Column("groups", "groups trained"), Column("sizes", "members of each"), Column("dropped", "groups dropped"),
        Column("lost", "members lost"), Column("failed", "failed handed on"), Column("retried", "retried"),
        Column("returned", "tickets back"), Column("opened", "groups opened"), Column("balanced", "balances"),
        Column("seconds", "at work", "s"),
    ]  # fmt: skip
    return Table("each policy, what it states and what was seen", columns, rows)


def _cells(found: Outcome) -> dict[str, str | int | bool]:
    return {
        "groups": " ".join(map(str, found.trained)), "sizes": " ".join(map(str, found.sizes)),
        "dropped": _told(found.dropped), "lost": _told(found.lost), "failed": found.failed,
        "retried": found.retried, "returned": found.returned, "opened": found.opened, "balanced": found.balanced,
    }  # fmt: skip


def _trained(cases: Sequence[tuple[Case, Played]]) -> Table:
    rows = [
        {
            "case": _named(case), "steps": "; ".join(" ".join(map(str, births)) for births in seen.steps),
            "segments": sum(seen.outcome.sizes), "statuses": _told(seen.statuses), "tasks": _told(seen.drawn),
        }
        for case, seen in cases
    ]  # fmt: skip
    columns = [
        Column("case", "case"), Column("steps", "groups of each step"), Column("segments", "members with a gradient"),
        Column("statuses", "episodes of the groups"), Column("tasks", "tasks drawn, by their end"),
    ]  # fmt: skip
    note = "surplus: tasks that were drawn and waited to be opened when the last step was complete"
    return Table("what the trainer was given, and what became of every task", columns, rows, note)


def _lates(late: Sequence[tuple[LateCase, Played]]) -> Table:
    rows = [
        {
            "late": case.late, "takes": "for ever" if case.delay_s is None else f"{case.delay_s:g} s",
            "steps": "; ".join(" ".join(map(str, births)) for births in seen.steps), "lag": max(_lags(seen), default=None),
            "dropped": _told(seen.outcome.dropped), "returned": seen.outcome.returned, "opened": seen.outcome.opened,
            "tasks": _told(seen.drawn), "seconds": seen.seconds,
        }
        for case, seen in late
    ]  # fmt: skip
    columns = [
        Column("late", "late groups"), Column("takes", "a member takes"), Column("steps", "groups of each step"),
        Column("lag", "largest lag", "versions"), Column("dropped", "groups dropped"), Column("returned", "tickets back"),
        Column("opened", "groups opened"), Column("tasks", "tasks drawn, by their end"), Column("seconds", "at work", "s"),
    ]  # fmt: skip
    return Table(f"a slow member in group {SLOW}, with {MAX_LAG} version of lag allowed", columns, rows)


def _told(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))


GROUPING = Experiment(
    name="grouping",
    title="Grouping: a member that runs into a deadline",
    question=(
        "What becomes of a group of four one of whose members times out, under every policy that a barrier can have: drop the "
        "group, shrink it down to so many members, try the member again and then drop or shrink? The real graph and trainer "
        "train three steps; in two groups a tool does not answer, and a real deadline ends the member. For each policy the "
        "stated result, which groups are trained with how many members, and the stated counts of drops, retries, tickets and "
        "groups opened, must be what is seen. And a group that is only slow is waited for, or dropped, as asked."
    ),
    config=GroupingConfig,
    short=GroupingConfig(limit_s=0.25),
    run=run,
)
