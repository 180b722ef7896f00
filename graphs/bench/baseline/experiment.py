"""The experiment ``baseline``: the small trainings one episode at a time, beside their record, and under other schedules."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from pydantic import BaseModel, ConfigDict, Field

from graphs.bench.baseline.observed import KINDS, SEED, Observed, observe, warmed_parts
from graphs.bench.baseline.record import COMMAND, Difference, differences, read_record
from graphs.bench.baseline.steady import OFF, steady_draws
from graphs.bench.experiment import Claim, Column, Experiment, Findings, Table, Tell
from graphs.bench.small import SMALL
from graphs.rl_config import RlConfig


class BaselineConfig(BaseModel):
    """What the record is compared with. What is trained is the record's, and has no settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    concurrency: int = Field(default=16, ge=2)
    """Episodes at once in the run that must come out as the one with one at a time."""
    tolerance: float = Field(default=1e-4, gt=0)
    """Most that a number computed in float32 may be off, relative where it is above 1."""


Schedule = Callable[[RlConfig, BaselineConfig], RlConfig]

ONE = "one at a time"
SCHEDULES: Mapping[str, Schedule] = {
    ONE: lambda rl, config: rl.model_copy(update={"max_concurrency": 1}),
    "concurrent": lambda rl, config: rl.model_copy(update={"max_concurrency": config.concurrency}),
}
"""Ways to run one training; each must train what the first does. Another one is another line here."""

LABELS: Mapping[str, tuple[str, ...]] = {
    "texts": ("said",),
    "token ids": ("ids",),
    "masks": ("mask",),
    "tasks, groups, members and retries": ("task", "step", "group", "member", "retry"),
    "statuses": ("status",),
    "rewards": ("reward",),
    "versions": ("versions",),
    "rows trained, in order": ("targets", "lags"),
    "counts of the steps": ("counts",),
}
"""What is claimed to be equal, and the fields of episodes and steps that it is."""
_SAID_ROUNDED = {"advantages": "advantages", "logprobs": "log-probabilities", "figures": "losses, norms and means of the steps"}


def run(config: BaselineConfig, tell: Tell) -> Findings:
    """Train, compare with the record, train again under each other schedule."""
    return asyncio.run(_measured(config, tell))


async def _measured(config: BaselineConfig, tell: Tell) -> Findings:
    stored = read_record()
    seen: dict[tuple[str, str], Observed] = {}
    parts = await warmed_parts()
    async with parts.engine:
        for kind in KINDS:
            for name, schedule in SCHEDULES.items():
                tell(len(seen), len(KINDS) * len(SCHEDULES), f"{kind}, {name}")
                seen[kind, name] = await observe(kind, parts, schedule(SMALL.rl, config))
    draws = steady_draws(seen["sampled", ONE], parts.model, parts.engine.context_length, SEED)
    found = {kind: differences(stored[kind], seen[kind, ONE].record) for kind in KINDS}
    claims = [*_of_record(found, config), _of_draws(draws), *_of_schedules(seen)]
    return Findings(
        answer=_answer(found, seen), claims=claims, tables=[_fields(found), _schedules(seen)], notes=_notes(config, draws),
        detail={"digests": {f"{kind}, {name}": list(each.digests) for (kind, name), each in seen.items()}},
    )  # fmt: skip


def _of_record(found: Mapping[str, Sequence[Difference]], config: BaselineConfig) -> list[Claim]:
    every = [each for of_kind in found.values() for each in of_kind]
    equal = [
        Claim(f"{label} that differ from the record", sum(each.different for each in every if each.field in fields), 0, "equal")
        for label, fields in LABELS.items()
    ]
    largest = {field: [each.largest for each in every if each.field == field] for field in _SAID_ROUNDED}
    rounded = [
        Claim(
            f"largest difference of {said} from the record",
            None if None in largest[field] else max(value for value in largest[field] if value is not None),
            config.tolerance,
            "most",
        )
        for field, said in _SAID_ROUNDED.items()
    ]
    return [*equal, *rounded]


def _of_draws(draws: tuple[int, int]) -> Claim:
    total, steady = draws
    return Claim(f"sampled tokens that logits off by {OFF:g} would change", total - steady, 0, "equal")


def _of_schedules(seen: Mapping[tuple[str, str], Observed]) -> list[Claim]:
    claims: list[Claim] = []
    for (kind, name), each in seen.items():
        one = seen[kind, ONE]
        if each is not one:
            claims += [
                Claim(f"{kind}, {name}: rows trained are the same, in the same order", _rows_equal(each, one), True, "equal"),
                Claim(f"{kind}, {name}: every episode and figure to the bit", each.record == one.record, True, "equal"),
                Claim(f"{kind}, {name}: parameters after each step to the bit", each.digests == one.digests, True, "equal"),
            ]
    return claims


def _rows_equal(one: Observed, other: Observed) -> bool:
    return [step.targets for step in one.record.steps] == [step.targets for step in other.record.steps]


def _answer(found: Mapping[str, Sequence[Difference]], seen: Mapping[tuple[str, str], Observed]) -> str:
    every = [each for of_kind in found.values() for each in of_kind]
    episodes = sum(len(seen[kind, ONE].record.episodes) for kind in found)
    different = sum(each.different for each in every if not each.rounded)
    apart = [each.largest for each in every if each.rounded]
    known = [value for value in apart if value is not None]
    rounding = "some cannot be compared" if None in apart else f"numbers are off by at most {max(known, default=0.0):.1e}"
    same = sum(each.digests == seen[kind, ONE].digests for (kind, name), each in seen.items() if name != ONE)
    others = len(seen) - len(found)
    return (
        f"One episode at a time, {episodes} episodes in two trainings differ from their record in {different} texts, ids, "
        f"masks, groups, rewards, versions or counts, and {rounding}. {same} of {others} runs under another schedule end with "
        "the same parameters to the bit."
    )


def _fields(found: Mapping[str, Sequence[Difference]]) -> Table:
    rows = [
        {
            "kind": kind, "of": each.of, "field": each.field, "rule": "within rounding" if each.rounded else "equal",
            "compared": each.compared, "different": None if each.rounded else each.different, "largest": each.largest,
        }
        for kind, of_kind in found.items()
        for each in of_kind
    ]  # fmt: skip
    columns = [
        Column("kind", "training"), Column("of", "of each"), Column("field", "field"), Column("rule", "must be"),
        Column("compared", "compared"), Column("different", "different"), Column("largest", "largest difference", digits=2),
    ]  # fmt: skip
    return Table(
        "one episode at a time, beside the record", columns,
        [row | {"largest": row["largest"] if row["rule"] != "equal" else None} for row in rows],
        note=f"the record is graphs/bench/records/baseline.json; {COMMAND} writes it anew",
    )  # fmt: skip


def _schedules(seen: Mapping[tuple[str, str], Observed]) -> Table:
    rows = [
        {
            "kind": kind, "schedule": name, "episodes": len(each.record.episodes),
            "tokens": sum(episode.mask.count("1") for episode in each.record.episodes),
            "overtaken": sum(each.ended[at] > each.ended[at + 1] for at in range(len(each.ended) - 1)),
            "rows": _rows_equal(each, seen[kind, ONE]), "bits": each.digests == seen[kind, ONE].digests,
            "digest": each.digests[-1], "seconds": each.seconds,
        }
        for (kind, name), each in seen.items()
    ]  # fmt: skip
    columns = [
        Column("kind", "training"), Column("schedule", "episodes"), Column("episodes", "episodes trained"),
        Column("tokens", "tokens sampled"), Column("overtaken", "overtaken"), Column("rows", "same rows in order"),
        Column("bits", "same parameters"), Column("digest", "digest of the last"), Column("seconds", "at work", "s"),
    ]  # fmt: skip
    note = "overtaken: episodes that ended after one of a later group or member, though they were begun before it"
    return Table("each training under each schedule", columns, rows, note)


def _notes(config: BaselineConfig, draws: tuple[int, int]) -> list[str]:
    return [
        "Texts, ids, masks, names of groups, statuses, rewards, versions, what was trained in which order and every count must "
        "be equal. Log-probabilities, advantages, losses and norms are float32, whose last bits depend on the processor: they "
        f"must be within {config.tolerance:g}, relative above 1.",
        "In the scripted training a script says what is said, so no rounding can change a token; the log-probabilities are "
        "those of the weights in force, and all else is as in any run. In the sampled one the engine draws. There a rounding "
        f"error could flip a close call, so each of the {draws[0]} draws was made again with its logits put off at random by "
        f"up to {OFF:g}: {draws[1]} come out the same each time. Processors differ by far less: with XLA held to older "
        "instruction sets (SSE 4.2, AVX, AVX2) all of the record was met, its log-probabilities within 1e-5.",
        "Both trainings begin with a warm start of 30 short steps and end after two steps of three groups of four: enough for "
        "weights to change once between what is sampled, not enough to learn anything.",
        "Schedules are compared within this run, on this machine, where nothing is left to rounding.",
    ]


BASELINE = Experiment(
    name="baseline",
    title="Correctness: a fixed training, one episode at a time",
    question=(
        "Does a training do today what it did when its record was made? The calculator, very small, with a fixed seed and a "
        "deterministic tool, is trained one episode at a time by the real graph, engine and trainer. Every text, "
        "token, mask, group, reward, version and row is compared with a committed record, and what float32 computes within "
        "rounding. Then it is run with many episodes at once, which end in another order: the rows that are trained must be "
        "the same, in the same order, to the bit."
    ),
    config=BaselineConfig,
    short=BaselineConfig(),
    run=run,
)
