"""The experiment ``recovery``: a training that is interrupted at any place ends as one that never was, and at what cost."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from graphs.bench.experiment import Claim, Column, Experiment, Findings, Table, Tell
from graphs.bench.recovery.interrupted import (
    EVERY,
    INTERRUPTIONS,
    Recovered,
    Whole,
    ground,
    recovered,
    unequal_wholes,
    uninterrupted,
)
from graphs.bench.recovery.program import TINY, InterruptedConfig


class RecoveryConfig(BaseModel):
    """Which interruptions are tried."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    num_interruptions: int = Field(default=len(INTERRUPTIONS), ge=1, le=len(INTERRUPTIONS))
    """Places where the training is interrupted, the first ones of the list; each costs two processes."""
    training: InterruptedConfig = InterruptedConfig()
    """What is interrupted."""
    warm_up: bool = True
    """Whether a first training only compiles, so that the times of the others are of one kind."""
    control: bool = True
    """Whether a second training that nobody interrupts is compared with the first, and their times averaged."""


def run(config: RecoveryConfig, tell: Tell) -> Findings:
    """Interrupt, go on, compare."""
    asked = INTERRUPTIONS[: config.num_interruptions]
    total = len(asked) + 3
    with ground(config.training) as here:
        tell(0, total, "a first training, which compiles")
        compiling = uninterrupted(here, "compiling") if config.warm_up else None
        tell(1, total, "a training that nobody interrupts")
        whole = uninterrupted(here)
        found: list[Recovered] = []
        for number, interruption in enumerate(asked):
            tell(2 + number, total, f"{interruption.during}: {interruption.what}")
            found.append(recovered(here, interruption, whole, f"{number}"))
        tell(total - 1, total, "a training that nobody interrupts, again")
        again = uninterrupted(here, "again") if config.control else None
        control = None if again is None else unequal_wholes(whole, again)
    unhurt_s = whole.seconds if again is None else (whole.seconds + again.seconds) / 2
    told = {"differences": {each.interruption.what: list(each.differences) for each in found}, "control": control}
    return Findings(
        answer=_answer(found, whole, unhurt_s),
        claims=[*_claims(found, whole, config), *_control(control)],
        tables=[_correct(found, whole), _cost(found, whole, unhurt_s)],
        notes=_notes(config.training, whole, compiling, again),
        detail=told,
    )


def _control(control: Sequence[str] | None) -> list[Claim]:
    if control is None:
        return []
    return [Claim("differences between two trainings that nobody interrupts", len(control), 0, "equal")]


def _claims(found: Sequence[Recovered], whole: Whole, config: RecoveryConfig) -> list[Claim]:
    def total(what: str) -> int:
        values = (getattr(each, what) for each in found)
        return sum(value if isinstance(value, int) else len(value) for value in values)

    return [
        Claim("differences from a training that nobody interrupts, in logs and commits", total("differences"), 0, "equal"),
        Claim("arrays of the last commit with other bits, parameters and optimizer state", total("arrays"), 0, "equal"),
        Claim("trainings whose steps trained what they do uninterrupted", total("steps_equal"), len(found), "equal"),
        Claim("rows trained twice", total("doubled_targets"), 0, "equal"),
        Claim("rows of the logs that are there twice", total("doubled_rows"), 0, "equal"),
        Claim("attempts at an episode executed twice", total("twice"), 0, "equal"),
        Claim(
            "most episodes that had ended and were executed again",
            max(each.ended_again for each in found), TINY.rl.max_concurrency, "most",
        ),
        Claim(
            "steps trained again beside those behind the latest commit", sum(e.steps_again - e.steps_behind for e in found), 0,
            "equal",
        ),
        Claim("processes that one of them has started while it runs", whole.children, config.training.processes),
        Claim("processes left behind", total("processes_left"), 0, "equal"),
        Claim("temporary and half-written files left behind", total("files_left"), 0, "equal"),
        Claim("threads left at the end", total("threads_left"), 0, "equal"),
    ]  # fmt: skip


def _answer(found: Sequence[Recovered], whole: Whole, unhurt_s: float) -> str:
    killed = sum(each.interruption.point != "" for each in found)
    same = sum(not each.differences for each in found)
    left = sum(each.processes_left + len(each.files_left) + len(each.threads_left) for each in found)
    lost = [each.seconds - unhurt_s for each in found]
    return (
        f"Of {len(found)} trainings, {killed} killed by SIGKILL in rollout, training, checkpoint write or weight sync, {same} "
        f"end as the one that was not interrupted, to the bit of {whole.arrays} arrays, after at most "
        f"{max(each.steps_again for each in found)} steps and {max(each.begun_again for each in found)} episodes made again; "
        f"{left} processes, files and threads were left behind. Each lost {min(lost):.1f} to {max(lost):.1f} s of a training "
        f"of {unhurt_s:.1f} s, of which opening takes {whole.opening_s:.1f} s."
    )


def _correct(found: Sequence[Recovered], whole: Whole) -> Table:
    rows: list[dict[str, Any]] = [
        {
            "during": each.interruption.during, "what": each.interruption.what, "differences": len(each.differences),
            "arrays": len(each.arrays), "steps": each.steps_equal, "targets": each.doubled_targets, "rows": each.doubled_rows,
            "twice": each.twice, "processes": each.processes_left, "files": " ".join(each.files_left),
            "threads": " ".join(each.threads_left),
        }
        for each in found
    ]  # fmt: skip
    columns = [
        Column("during", "interrupted in"), Column("what", "where"), Column("differences", "differences"),
        Column("arrays", "other arrays"), Column("steps", "same steps"), Column("targets", "rows trained twice"),
        Column("rows", "log rows twice"), Column("twice", "attempts twice"), Column("processes", "processes left"),
        Column("files", "files left"), Column("threads", "threads left"),
    ]  # fmt: skip
    return Table(f"what came out, beside the training that was not interrupted ({whole.arrays} arrays)", columns, rows)


def _cost(found: Sequence[Recovered], whole: Whole, unhurt_s: float) -> Table:
    rows: list[dict[str, Any]] = [
        {"what": "not interrupted", "begun": whole.begun, "steps": whole.num_steps, "seconds": unhurt_s},
        *(
            {
                "during": each.interruption.during, "what": each.interruption.what, "begun": whole.begun + each.begun_again,
                "again": each.begun_again, "ended": each.ended_again, "steps": whole.num_steps + each.steps_again,
                "steps_again": each.steps_again, "behind": each.steps_behind, "gone": each.ended_s, "seconds": each.seconds,
                "lost": each.seconds - unhurt_s,
            }
            for each in found
        ),
    ]  # fmt: skip
    columns = [
        Column("during", "interrupted in"), Column("what", "where"), Column("begun", "episodes executed"),
        Column("again", "again"), Column("ended", "of these, had ended"), Column("steps", "steps trained"),
        Column("steps_again", "again"), Column("behind", "behind the commit"),
        Column("gone", "its processes gone after", "s"), Column("seconds", "in all", "s"), Column("lost", "lost", "s"),
    ]  # fmt: skip
    note = (
        f"lost: both processes together, less the mean of two trainings that nobody interrupts, of whose time "
        f"{whole.opening_s:.1f} s go by before the first episode. A commit is due every {EVERY} steps and is written while "
        "training goes on, so more steps than that may be behind the latest whole one"
    )
    return Table("what was made again, and the time lost", columns, rows, note)


def _notes(config: InterruptedConfig, whole: Whole, compiling: Whole | None, again: Whole | None) -> list[str]:
    rows = [
        "Real processes and signals, and the command of users (headrace run, --options.resume auto): a warm start of "
        f"{config.warm_steps} steps, then {whole.num_steps} steps of GRPO on the small calculator, with environments in "
        f"{config.processes} processes, a tool that answers after a time no seed decides, and members that fail and are tried "
        "again. Each process dies at the middle one of all times that it comes to the place.",
        "Equal is what graphs/runs/equal.py finds no difference in: every row of metrics, every episode word by word, the "
        "summary's scores and counts, all arrays of the commits, to the bit; times are no part of it.",
        "An episode that has ended is executed again only where the kill fell between its end and its note in the journal, or "
        "the weights it was made with were made again.",
        f"Processes are those that the killed one, or the one that went on, had started ({whole.children} at once where it was "
        "looked at); they end by themselves when whoever started them is gone.",
        "With max_lag=0. With a lag the order in which episodes arrive decides what a step is made of, interrupted or not.",
    ]
    if compiling is not None:
        rows.append(
            f"Processes share compiled programs on the disk; a first one, which compiles, took {compiling.seconds:.1f} s."
        )
    if again is not None:
        both = f"{whole.seconds:.1f} and {again.seconds:.1f} s"
        rows.append(f"The two trainings that nobody interrupts took {both}: what is lost is known no better.")
    return rows


RECOVERY = Experiment(
    name="recovery",
    title="Recovery: interrupted anywhere, and gone on with",
    question=(
        "What does a kill cost, and does it change anything? A small training of real processes is ended by SIGKILL in the "
        "middle of rollout, of training, of writing a checkpoint and of giving the engine new weights, and by SIGTERM, and is "
        "gone on with by the same command. Its logs, trained rows and parameters must be those of a training that nobody "
        "interrupted, to the bit; no row is trained twice, no attempt executed twice, nothing is left behind. What had to be "
        "made again is counted, and the time that it took."
    ),
    config=RecoveryConfig,
    short=RecoveryConfig(
        num_interruptions=1, training=InterruptedConfig(steps=3, warm_steps=0, processes=1), warm_up=False, control=False
    ),
    run=run,
)
