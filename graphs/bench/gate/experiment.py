"""The experiment ``gate``: a change that makes steps faster and the policy worse is refused, one that does no harm is not."""

import asyncio
from collections.abc import Sequence

from graphs.bench.experiment import Claim, Column, Experiment, Findings, Table, Tell
from graphs.bench.gate.trials import (
    BASE,
    HARMFUL,
    HARMLESS,
    KEPT,
    TrialsConfig,
    changes_of,
    program_config,
    tried,
    warmed,
)
from graphs.bench.gate.verdict import Judged, Trial, judge
from graphs.bench.learnable import scored
from graphs.report.plots import Plot
from graphs.report.series import Series
from stages.scores import Score

FASTER = {HARMLESS: 1.1, HARMFUL: 1.5}
"""Least that a change must speed a step up by, or it would be no throughput change."""


def run(config: TrialsConfig, tell: Tell) -> Findings:
    """Train with each change, and judge it."""
    start, trials = asyncio.run(_measured(config, tell))
    by_name = {trial.name: trial for trial in trials}
    judged = {trial.name: judge(by_name[BASE], trial, config.tolerance) for trial in trials if trial.name != BASE}
    return Findings(
        answer=_answer(by_name, judged),
        claims=_claims(start, by_name, judged),
        tables=[_verdicts(trials, judged), _scores(trials)],
        plots=[_plot(trials)],
        notes=_notes(config, start),
        detail={"stopped": {trial.name: trial.stopped for trial in trials if trial.stopped}},
    )


async def _measured(config: TrialsConfig, tell: Tell) -> tuple[Score, list[Trial]]:
    names = list(changes_of(config))
    tell(0, len(names) + 1, "the warm start")
    parts, trials = await warmed(config), list[Trial]()
    async with parts.engine:
        parts.load()
        start = await scored(program_config(config), parts)
        for name in names:
            tell(len(trials) + 1, len(names) + 1, name)
            trials.append(await tried(name, config, parts))
    return start, trials


def _claims(start: Score, trials: dict[str, Trial], judged: dict[str, Judged]) -> list[Claim]:
    base, harmless, harmful, kept = (trials[name] for name in (BASE, HARMLESS, HARMFUL, KEPT))
    same = harmless.digests == base.digests
    best_low = max((row[1:] for row in kept.evaluations), default=(0.0, 0.0, 0.0))[1]
    return [
        Claim(f"{BASE}: held-out success gained since the warm start", base.score.success - start.success, 0.1),
        Claim(f"{BASE}: its gate lets it pass", base.stopped is None, True, "equal"),
        Claim(f"{HARMLESS}: times the steps in the same time", judged[HARMLESS].faster, FASTER[HARMLESS]),
        Claim(f"{HARMLESS}: parameters after every step are the same, to the bit", same, True, "equal"),
        Claim(f"{HARMLESS}: verdict", judged[HARMLESS].verdict, "accepted", "equal"),
        Claim(f"{HARMFUL}: times the steps in the same time", judged[HARMFUL].faster, FASTER[HARMFUL]),
        Claim(f"{HARMFUL}: upper end of the change of held-out success", judged[HARMFUL].high, 0.0, "most"),
        Claim(f"{HARMFUL}: its gate stops it", harmful.stopped is not None, True, "equal"),
        Claim(f"{HARMFUL}: verdict", judged[HARMFUL].verdict, "refused", "equal"),
        Claim(f"{KEPT}: held-out success at the end, of the best weights and not the last", kept.score.success, best_low),
    ]  # fmt: skip


def _answer(trials: dict[str, Trial], judged: dict[str, Judged]) -> str:
    harmless, harmful = judged[HARMLESS], judged[HARMFUL]
    return (
        f"A change that takes steps {harmful.faster:.1f} times as fast and held-out success from "
        f"{trials[BASE].score.success:.2f} to {trials[HARMFUL].score.success:.2f} is {harmful.verdict}"
        f"{', its run stopped after step ' + str(trials[HARMFUL].steps) if trials[HARMFUL].stopped else ''}; a gate that keeps "
        f"the best ends with {trials[KEPT].score.success:.2f}. One that takes steps {harmless.faster:.1f} times as fast and "
        f"changes nothing that is learned is {harmless.verdict}."
    )


def _verdicts(trials: Sequence[Trial], judged: dict[str, Judged]) -> Table:
    rows = []
    for trial in trials:
        found = judged.get(trial.name)
        row = {
            "name": trial.name, "steps": trial.steps, "step_s": trial.step_s, "rate": 60 / trial.step_s, "lag": trial.lag,
            "success": trial.score.success, "low": trial.score.low, "high": trial.score.high,
        }  # fmt: skip
        if found is not None:
            row |= {
                "faster": found.faster, "change": found.change, "change_low": found.low, "change_high": found.high,
                "verdict": found.verdict, "why": found.why,
            }  # fmt: skip
        rows.append(row)
    columns = [
        Column("name", "training"), Column("steps", "steps"), Column("step_s", "a step", "s"),
        Column("rate", "rate", "steps/min"), Column("faster", "times as fast"), Column("lag", "largest lag"),
        Column("success", "held-out", "share"), Column("low", "from", "share"), Column("high", "to", "share"),
        Column("change", "change", "share"), Column("change_low", "from", "share"), Column("change_high", "to", "share"),
        Column("verdict", "verdict"), Column("why", "why"),
    ]  # fmt: skip
    return Table(
        "each training, and the verdict on its change", columns, rows, note="a step: the median; intervals are of 95 %"
    )


def _scores(trials: Sequence[Trial]) -> Table:
    rows = [
        {"name": trial.name, "version": version, "success": success, "low": low, "high": high}
        for trial in trials
        for version, success, low, high in trial.evaluations
    ]
    columns = [
        Column("name", "training"), Column("version", "version"), Column("success", "held-out", "share"),
        Column("low", "from", "share"), Column("high", "to", "share"),
    ]  # fmt: skip
    return Table("evaluations during training, which the gates judge by", columns, rows)


def _plot(trials: Sequence[Trial]) -> Plot:
    xs = sorted({version for trial in trials for version, *_ in trial.evaluations})

    def places(trial: Trial, at: int) -> list[float | None]:
        found = {row[0]: row[at] for row in trial.evaluations}
        return [found.get(x) for x in xs]

    series = [Series(trial.name, places(trial, 1), places(trial, 2), places(trial, 3)) for trial in trials]
    return Plot(
        "Held-out success during training", "of the version in force, with its interval of 95 %", xs, series, unit="share",
        kind="intervals", x_unit="version", zero=True,
    )  # fmt: skip


def _notes(config: TrialsConfig, start: Score) -> list[str]:
    few, many = config.concurrency
    return [
        f"Real trainings of the calculator, small: products of two digits and one, a decoder of two layers, tools that take "
        f"30 ms and up with a heavy tail. All begin with one warm start (held-out success {start.success:.2f}), have the same "
        f"seed, tasks and learning rate of {config.learning_rate:g}, and take {config.steps} steps unless a gate stops them.",
        f"{HARMLESS}: {many} episodes at once in place of {few}. {HARMFUL}: that, and episodes that may lag {config.max_lag} "
        "versions, with a ratio against the parameters at the beginning of the step, which is 1: nothing corrects or bounds "
        "what is stale. What such a training learns depends on timing, and so differs from run to run.",
        f"The gate (--rl.gate.heldout-drop {config.tolerance:g}) judges every {config.evaluate_every}th version's held-out "
        f"success against the best so far, on {config.num_tasks // 2} tasks; the verdict compares the weights at the end on "
        f"{config.num_tasks} tasks. It refuses what a gate stopped or what is worse beyond chance, accepts what is not worse "
        f"by {config.tolerance:g} beyond chance, and is undecided in between.",
        "One seed: it shows that the gate works, not how often such changes do harm.",
    ]


GATE = Experiment(
    name="gate",
    title="Quality gate: faster, and worse",
    question=(
        "Is a change that makes training faster and the policy worse refused? From one warm start the small calculator is "
        "trained as it is, with more episodes at once, and with a large uncorrected lag on top of that. Speed is that of "
        "steps; quality is success on held-out tasks, with its interval. The gate of the run must stop the harmful training, "
        "or end it with its best weights, and the verdict on it must be to refuse it; the harmless one must pass."
    ),
    config=TrialsConfig,
    short=TrialsConfig(
        warm_steps=8, steps=4, groups_per_step=1, evaluate_every=2, num_tasks=16, concurrency=(4, 12), max_lag=2
    ),
    run=run,
)
