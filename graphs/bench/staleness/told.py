"""What the trainings of the study say: claims, tables, plots. Runs nothing."""

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from graphs.bench.experiment import Cell, Claim, Column, Findings, Table
from graphs.bench.rates import TARGET
from graphs.bench.staleness.closed_form import mean_lag_of_run
from graphs.bench.staleness.pipelines import Pipeline
from graphs.bench.staleness.settings import CORRECTIONS, CorrectionName, StalenessConfig
from graphs.bench.staleness.trained import Trained, mean_of
from graphs.report.plots import Plot
from graphs.report.series import Series

Choice = tuple[int, CorrectionName]
"""Bound and correction."""
LEAST_OF_CLOSED_FORM = 0.9
"""Mean lag over that of the closed form, of a training. It is seldom above: what delays a dispatch makes it younger."""
MOST_OFF = 0.25
"""Versions between the mean lag of a pipeline by script and the closed form: that is in whole groups, of which a step has 4."""
_POINTS = 60
_BY_STEP = ("kl", "clipped", "corrected", "goodput")


def findings(config: StalenessConfig, found: Sequence[Trained], pipelines: Mapping[str, Pipeline], num_before: int) -> Findings:
    """What was found.

    Args:
        config: of the study.
        found: all trainings.
        pipelines: by what bounds them.
        num_before: trainings that an earlier start of the study had done.
    """
    by_choice = _by_choice(found)
    return Findings(
        answer=_answer(config, by_choice),
        claims=[*_equality(found), *_lags(found, pipelines), *_figures(config, by_choice)],
        tables=[_choices(config, by_choice), _of_lag(config, found, pipelines)],
        plots=[*_over_time(config, by_choice), _final(config, by_choice), _histogram(config, found)],
        notes=_notes(config, found, num_before),
        detail={"trainings": [_detail(each) for each in found],
                "pipelines": {name: asdict(each) for name, each in pipelines.items()}},
    )  # fmt: skip


def _detail(each: Trained) -> dict[str, Any]:
    """A training without its steps one by one."""
    return {
        **msgspec.to_builtins(each.wanted), "seconds": each.seconds, "ratio": each.ratio, "idle": each.idle,
        "scores": [[score.version, score.seconds, score.success] for score in each.scores],
        "lags": {str(lag): count for lag, count in sorted(Counter(each.lags).items())},
        "digest": each.digests[-1], "rates": asdict(each.rates), "date": each.date, "load": each.load,
        **{name: mean_of(getattr(each, name)) for name in _BY_STEP},
    }  # fmt: skip


def _by_choice(found: Sequence[Trained]) -> Mapping[Choice, Sequence[Trained]]:
    """Trainings by bound and correction, a seed each; repeated ones left out."""
    first = [each for each in found if not each.wanted.again]
    choices = dict.fromkeys((each.wanted.max_lag, each.wanted.correction) for each in first)
    return {choice: [each for each in first if (each.wanted.max_lag, each.wanted.correction) == choice] for choice in choices}


def _equality(found: Sequence[Trained]) -> list[Claim]:
    """Of the trainings that were repeated."""
    again = [each for each in found if each.wanted.again]
    by_wanted = {each.wanted: each for each in found}
    same = [by_wanted[msgspec.structs.replace(each.wanted, again=False)].digests == each.digests for each in again]
    what = "max_lag=0, repeated: seeds whose parameters are the same to the bit after every step"
    return [Claim(what, sum(same), len(same), "equal")] if again else []


def _lags(found: Sequence[Trained], pipelines: Mapping[str, Pipeline]) -> list[Claim]:
    over = max(max(each.lags) - each.wanted.max_lag for each in found)
    lagging = [each for each in found if each.wanted.max_lag > 0]
    claims = [Claim("versions by which the oldest group of all exceeds its max_lag", over, 0, "most")]
    if lagging:
        shares = [each.mean_lag / mean_lag_of_run(each.rates, len(each.digests)) for each in lagging]
        claims += [
            Claim("mean lag of a training over that of the closed form, least of all", min(shares), LEAST_OF_CLOSED_FORM),
            Claim("the same, most of all", max(shares)),
        ]
    if pipelines:
        off = max(abs(each.lag - each.rates.mean_lag) for each in pipelines.values())
        what = "pipelines by script: versions between the mean lag and that of the closed form, most of all"
        claims.append(Claim(what, off, MOST_OFF, "most"))
    least = min(each.ratio for each in found)
    what = "groups per minute of a training over those of the event model with the measured times, least of all"
    return [*claims, Claim(what, least, TARGET)]


def _figures(config: StalenessConfig, by_choice: Mapping[Choice, Sequence[Trained]]) -> list[Claim]:
    """What each bound does, told without one."""
    first = config.corrections[0]
    base = by_choice.get((0, first))
    claims: list[Claim] = []
    for max_lag in (lag for lag in config.max_lags if lag > 0):
        if base is not None:
            faster = _mean(base, "seconds") / _mean(by_choice[max_lag, first], "seconds")
            claims.append(Claim(f"max_lag={max_lag}: times the steps of max_lag=0 in the same time", faster))
        if "none" in config.corrections and len(config.corrections) > 1:
            finals = {name: _final_score(by_choice[max_lag, name]) for name in config.corrections}
            gained = max(score for name, score in finals.items() if name != "none") - finals["none"]
            claims.append(Claim(f"max_lag={max_lag}: final score of the best correction over that of none", gained))
    return claims


def _final_score(trainings: Sequence[Trained]) -> float:
    return sum(each.scores[-1].success for each in trainings) / len(trainings)


def _mean(trainings: Sequence[Trained], name: str) -> float:
    return sum(getattr(each, name) for each in trainings) / len(trainings)


def _name(choice: Choice) -> str:
    return f"max_lag={choice[0]}" + (f", {choice[1]}" if choice[0] else "")


def _to_target(config: StalenessConfig, trainings: Sequence[Trained]) -> tuple[int, float | None]:
    """Seeds that reach it, and their mean time to it; ``None`` unless all do."""
    times = [seconds for each in trainings if (seconds := each.seconds_to(config.target)) is not None]
    return len(times), sum(times) / len(times) if len(times) == len(trainings) else None


def _answer(config: StalenessConfig, by_choice: Mapping[Choice, Sequence[Trained]]) -> str:
    times = {choice: _to_target(config, trainings)[1] for choice, trainings in by_choice.items()}
    reached = sorted((seconds, choice) for choice, seconds in times.items() if seconds is not None)
    if not reached:
        quick = f"No choice reaches a held-out score of {config.target:g} with every seed."
    else:
        seconds, choice = reached[0]
        quick = f"{_name(choice)} is the first at a held-out score of {config.target:g}, after {seconds:.0f} s"
        strict = times.get((0, config.corrections[0]))
        quick += f", where max_lag=0 takes {strict:.0f} s." if strict is not None and choice[0] else "."
    finals = sorted(((_final_score(trainings), choice) for choice, trainings in by_choice.items()), reverse=True)
    (best, best_choice), (worst, worst_choice) = finals[0], finals[-1]
    return (
        f"{quick} At the end {_name(best_choice)} has the best score, {best:.2f}, and {_name(worst_choice)} the worst, "
        f"{worst:.2f}: means over {_seeds(config)}."
    )


def _seeds(config: StalenessConfig) -> str:
    return f"{len(config.seeds)} seeds" if len(config.seeds) > 1 else "one seed"


def _choices(config: StalenessConfig, by_choice: Mapping[Choice, Sequence[Trained]]) -> Table:
    columns = [
        Column("max_lag", "max_lag"), Column("correction", "correction"),
        Column("final", "final score", "share"), Column("least", "least seed", "share"), Column("most", "most", "share"),
        Column("reached", f"seeds at {config.target:g}"), Column("to_target", "time to it", "s"),
        Column("rate", "rate", "steps/min"), Column("ratio", "run over model", "share"),
        Column("idle", "trainer idle", "share"), Column("lag", "mean lag"), Column("p99", "p99 lag"),
        Column("kl", "KL", "nats"),
        Column("clipped", "clipped", "share"), Column("corrected", "truncated or masked", "share"),
        Column("goodput", "goodput", "share"),
    ]  # fmt: skip
    return Table(
        "bounds and corrections, means over the seeds",
        columns,
        [_choice_row(config, choice, trainings) for choice, trainings in by_choice.items()],
        note=f"the time to {config.target:g} is told where every seed reaches it; KL is of what sampled and what is trained",
    )


def _choice_row(config: StalenessConfig, choice: Choice, trainings: Sequence[Trained]) -> dict[str, Cell]:
    finals = [each.scores[-1].success for each in trainings]
    reached, to_target = _to_target(config, trainings)
    lags = [lag for each in trainings for lag in each.lags]
    figures = {name: mean_of([mean_of(getattr(each, name)) for each in trainings]) for name in _BY_STEP}
    return {
        "max_lag": choice[0], "correction": choice[1] if choice[0] else "nothing to correct",
        "final": sum(finals) / len(finals), "least": min(finals), "most": max(finals), "reached": reached,
        "to_target": to_target, "rate": sum(60 * len(each.digests) / each.seconds for each in trainings) / len(trainings),
        "ratio": min(each.ratio for each in trainings), "idle": _mean(trainings, "idle"), "lag": sum(lags) / len(lags),
        "p99": p99(lags), **figures,
    }  # fmt: skip


def p99(lags: Sequence[int]) -> int:
    """The least lag that 99 of 100 groups do not exceed."""
    return sorted(lags)[math.ceil(0.99 * len(lags)) - 1]


def _of_lag(config: StalenessConfig, found: Sequence[Trained], pipelines: Mapping[str, Pipeline]) -> Table:
    rows: list[dict[str, Cell]] = []
    for max_lag in config.max_lags:
        trainings = [each for each in found if each.wanted.max_lag == max_lag]
        expected = [mean_lag_of_run(each.rates, len(each.digests)) for each in trainings]
        measured = [each.mean_lag for each in trainings]
        rows.append(
            {"what": "trainings", "max_lag": max_lag, "closed": sum(expected) / len(expected), "least": min(measured),
             "mean": sum(measured) / len(measured), "most": max(measured)}
        )  # fmt: skip
    for name, each in pipelines.items():
        rows.append(
            {"what": f"script, bound by {name}", "max_lag": each.max_lag, "closed": each.rates.mean_lag, "least": None,
             "mean": each.lag, "most": None}
        )  # fmt: skip
    columns = [
        Column("what", "what"), Column("max_lag", "max_lag"), Column("closed", "closed form"), Column("mean", "mean lag"),
        Column("least", "least run"), Column("most", "most"),
    ]  # fmt: skip
    return Table("mean lag, in versions, beside the closed form with the run's own mean times", columns, rows)


def _over_time(config: StalenessConfig, by_choice: Mapping[Choice, Sequence[Trained]]) -> list[Plot]:
    """The score over the clock, for each correction a plot."""
    return [
        _over_time_of(name, {choice[0]: each for choice, each in by_choice.items() if choice[1] == name or not choice[0]})
        for name in config.corrections
    ]


def _over_time_of(name: CorrectionName, by_lag: Mapping[int, Sequence[Trained]]) -> Plot:
    last = max(each.seconds for trainings in by_lag.values() for each in trainings)
    xs = [last * at / _POINTS for at in range(_POINTS + 1)]
    series: list[Series] = []
    for max_lag, trainings in by_lag.items():
        columns = list(zip(*([_score_at(each, x) for x in xs] for each in trainings), strict=True))
        series.append(
            Series(
                f"max_lag={max_lag}",
                [_of_all(column, lambda known: sum(known) / len(known)) for column in columns],
                [_of_all(column, min) for column in columns],
                [_of_all(column, max) for column in columns],
            )
        )
    meaning = "of the latest version scored; the mean over the seeds, the band their least and most"
    return Plot(f"Held-out score over time, {name}", meaning, xs, series, unit="share", x_unit="s")


def _score_at(training: Trained, seconds: float) -> float | None:
    """Of the latest version that was there; ``None`` after the end."""
    known = [score.success for score in training.scores if score.seconds <= seconds]
    ended = len(known) == len(training.scores) and seconds > training.seconds
    return None if ended else known[-1]


def _of_all(values: Sequence[float | None], made: Any) -> float | None:
    known = [value for value in values if value is not None]
    return made(known) if len(known) == len(values) else None


def _final(config: StalenessConfig, by_choice: Mapping[Choice, Sequence[Trained]]) -> Plot:
    series: list[Series] = []
    for name in config.corrections:
        columns = [
            [each.scores[-1].success for each in by_choice.get((max_lag, name), ())] for max_lag in sorted(config.max_lags)
        ]
        series.append(
            Series(
                name,
                [sum(column) / len(column) if column else None for column in columns],
                [min(column, default=None) for column in columns],
                [max(column, default=None) for column in columns],
            )
        )
    meaning = "the mean over the seeds, and the least and most of them, by max_lag"
    return Plot("Final held-out score", meaning, sorted(config.max_lags), series, unit="share", kind="intervals",
                x_unit="max_lag")  # fmt: skip


def _histogram(config: StalenessConfig, found: Sequence[Trained]) -> Plot:
    xs = range(max(config.max_lags) + 1)
    series: list[Series] = []
    for max_lag in config.max_lags:
        counts = Counter(itertools.chain.from_iterable(each.lags for each in found if each.wanted.max_lag == max_lag))
        series.append(Series(f"max_lag={max_lag}", [counts[x] / counts.total() if x <= max_lag else None for x in xs]))
    meaning = "share of the groups that were trained at it, of all trainings with a bound"
    return Plot("Lag", meaning, list(xs), series, unit="share", x_unit="versions")


def _notes(config: StalenessConfig, found: Sequence[Trained], num_before: int) -> list[str]:
    starts = {each.wanted.seed: each.scores[0].success for each in found}
    told = ", ".join(f"{score:.2f}" for score in starts.values())
    loads = [each.load for each in found]
    dates = sorted(each.date for each in found)
    before = f", of which {num_before} were kept from an earlier start" if num_before else ""
    return [
        "Real trainings of the calculator, small: products of two digits and one, a decoder of two layers, "
        f"{config.groups_per_step} groups of 8 a step, {config.steps} steps, a learning rate of {config.learning_rate:g} that "
        f"does not fall. All of a seed begin with the same weights (held-out score {told}).",
        f"A call of the tool takes {config.delay.scale_s:g} s and up, Pareto with shape {config.delay.shape:g}, at most "
        f"{config.delay.max_s:g} s. There is a place for every episode that a ticket lets be open, so tickets bound the lag.",
        f"Scores are of {config.num_tasks} held-out tasks, every {config.evaluate_every} versions, measured after the training "
        "from its kept weights: they take none of its time. The clock runs from the first episode to the last step, "
        "without compilation.",
        *(f"{name}: {CORRECTIONS[name].what}." for name in config.corrections),
        "Lag is counted from the dispatch of an episode. Weights change between two tokens, so its later tokens are younger; "
        "each is corrected by what sampled it.",
        "decoupled makes twice as many updates, each of half the groups, so its score is not that of the correction alone.",
        "With a lag, what is learned depends on timing and so on the machine; with max_lag=0 it does not.",
        f"{len(found)} trainings from {dates[0]} to {dates[-1]}{before}, under a load of the machine of "
        f"{min(loads):g} to {max(loads):g} when they began.",
        f"{_seeds(config)}: a spread, not a distribution. One task, one model, one learning rate: a larger learning "
        "rate makes each version further from the one before, and so the same lag worse.",
    ]  # fmt: skip
