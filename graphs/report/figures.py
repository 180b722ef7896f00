"""The plots of a run: which rows they are made of, what they say, in which unit. Pure; ``plots.py`` draws them."""

import itertools
from collections.abc import Callable, Iterator, Sequence

from graphs.report.plots import Plot
from graphs.report.record import Row, RunRecord, number
from graphs.report.series import Series, Values
from stages.records import Status

STATUS_COLORS = {
    Status.FINISHED: 2, Status.TRUNCATED_LENGTH: 4, Status.TRUNCATED_TURNS: 7, Status.TIMED_OUT: 1,
    Status.ENVIRONMENT_ERROR: 3, Status.TOOL_ERROR: 5, Status.MODEL_ERROR: 6, Status.CANCELLED: 8,
}  # fmt: skip
_Make = Callable[[Row], float | None]


def learning(record: RunRecord) -> list[Plot]:
    """Whether it learns: reward, scores, and what the update did."""
    rows = _main(record)
    heldout = _heldout(record)
    return _there([
        *([] if heldout is None else [heldout]),
        _plot(rows, "Success in training", "episodes with a reward of 1, of all episodes of the step, failed ones included",
              [("success", "success")], unit="share"),
        _plot(rows, "Reward", "mean over scored episodes of the step, and their standard deviation as a band",
              [("reward", "reward_mean")], unit="reward", around="reward_std", zero=False),
        _plot(rows, "Loss", "summed over the divisor of the step", [("loss", "loss")], zero=False),
        _plot(rows, "KL", "of the policy from what sampled the tokens, mean over trained tokens", [("KL", "kl")], unit="nats",
              log=True),
        _plot(rows, "Entropy", "of the policy, mean over trained tokens", [("entropy", "entropy")], unit="nats"),
        _plot(rows, "Gradient norm", "global, before it is scaled down", [("norm", "grad_norm")], log=True),
        *([_plot(rows, "Clipped", "trained tokens whose ratio was clipped", [("clipped", "clip_fraction")], unit="share")]
          if any(number(row.get("clip_fraction")) for row in rows) else []),
        _plot(rows, "Engine gap", "difference of the log-probabilities of engine and trainer, of tokens of one version",
              [("largest", "engine_gap_max"), ("mean", "engine_gap")], unit="nats", log=True),
        _plot(rows, "Learning rate", "of the latest update", [("learning rate", "learning_rate")]),
    ])  # fmt: skip


def flowing(record: RunRecord) -> list[Plot]:
    """What became of the episodes: lengths, ends, age, and what of them was trained."""
    rows = _main(record)
    return _there([
        _plot(rows, "Episode length", "sampled tokens of an episode, mean over the step",
              [("tokens", _over("sampled_tokens", "num_episodes"))], unit="tokens"),
        _plot(rows, "Turns", "of an episode, mean over the step", [("turns", "turns_mean")], unit="turns"),
        _statuses(rows),
        _plot(rows, "Lag", "versions between the dispatch of an episode and the step that trained it",
              [("largest", "lag_max"), ("mean", "lag_mean")], unit="versions"),
        _plot(rows, "Goodput", "trained tokens, of all that were sampled for the step", [("goodput", "goodput")], unit="share"),
        _plot(rows, "Groups without signal", "of the groups of the step: no token of them has an advantage",
              [("no signal", "no_signal_groups")], unit="share"),
    ])  # fmt: skip


def speed(record: RunRecord) -> list[Plot]:
    """How fast it is, and what the trainer's time goes into."""
    rows = _main(record)
    return _there([
        _plot(rows, "Time of a step", "of the trainer, by what it did",
              [("waits", "wait_s"), ("gradient", "gradient_s"), ("proximal", "proximal_s"), ("update", "update_s")],
              unit="seconds", kind="stack", colors=(8, 0, 3, 4)),
        _plot(rows, "Tokens per second", "of wall time between steps",
              [("sampled", _over("sampled_tokens", "step_s")), ("trained", _over("trained_tokens", "step_s"))],
              unit="tokens/s"),
        _plot(rows, "Gradient", "tokens per second while a gradient is taken",
              [("tokens", "gradient_tokens_per_second")], unit="tokens/s"),
        _plot(rows, "Length of an episode in time", "mean over the step", [("seconds", "episode_s_mean")], unit="seconds"),
    ])  # fmt: skip


def condition(record: RunRecord) -> list[Plot]:
    """How the run did over time, all phases of it: memory, the engine's slots, the loop, groups on their way."""
    rows = sorted((row for row in record.health if number(row["seconds"]) is not None), key=lambda row: row["seconds"])
    return _there([
        _plot(rows, "Made per minute", "episodes that ended, failed ones included; complete groups; training rows",
              [("episodes", "trajectories_per_minute"), ("groups", "groups_per_minute"), ("rows", "examples_per_minute")],
              x="seconds", unit="per minute"),
        _plot(rows, "Engine slots in use", "of all slots, in decode steps", [("in use", "engine_utilisation")], x="seconds",
              unit="share"),
        _plot(rows, "Groups on their way", "opened and not closed; complete and in no step yet",
              [("open", "open_groups"), ("ready", "ready_groups")], x="seconds", unit="groups"),
        _plot(rows, "Host memory", "of the process", [("memory", "host_memory_mb")], x="seconds", unit="MB"),
        _plot(rows, "Lag of the loop", "longest that the event loop was held up since the row before",
              [("lag", "loop_lag_ms")], x="seconds", unit="ms", log=True),
    ])  # fmt: skip


def before(record: RunRecord) -> list[tuple[str, list[Plot]]]:
    """The trainings before the main one, each by its name: their loss and their speed."""
    others = [(phase, rows) for phase, rows in record.trainings.items() if phase != record.main]
    found = [
        (
            phase.replace("_", " "),
            _there([
                _plot(rows, "Loss", "summed over the divisor of the step", [("loss", "loss")], zero=False),
                _plot(rows, "Gradient norm", "global, before it is scaled down", [("norm", "grad_norm")], log=True),
                _plot(rows, "Tokens per second", "trained, of wall time between steps",
                      [("trained", _over("trained_tokens", "step_s"))], unit="tokens/s"),
            ]),
        )
        for phase, rows in others
    ]  # fmt: skip
    return [(phase, plots) for phase, plots in found if plots]


def _main(record: RunRecord) -> Sequence[Row]:
    return record.trainings.get(record.main or "", ())


def _plot(
    rows: Sequence[Row],
    title: str,
    meaning: str,
    lines: Sequence[tuple[str, str | _Make]],
    *,
    x: str = "step",
    around: str | None = None,
    colors: Sequence[int] = (),
    **look: object,
) -> Plot:
    series = []
    for at, (label, made) in enumerate(lines):
        values = [number(row.get(made)) if isinstance(made, str) else made(row) for row in rows]
        color = colors[at] if colors else None
        if look.get("kind") == "stack" and not any(values):
            continue
        if around is None:
            series.append(Series(label, values, color=color))
        else:
            spread = [number(row.get(around)) for row in rows]
            series.append(Series(label, values, *_around(values, spread), color=color))
    keys = [made for _, made in lines if isinstance(made, str)]
    xs, marks, note = [float(row[x]) for row in rows], _marks(rows, x), _not_finite(rows, keys)
    return Plot(title, meaning, xs, series, x_unit=x, marks=marks, note=note, **look)  # pyright: ignore[reportArgumentType]


def _statuses(rows: Sequence[Row]) -> Plot:
    totals = [number(row.get("num_episodes")) for row in rows]
    series = [
        Series(
            status.value.replace("_", " "),
            [None if not total else (number(row.get(f"episodes_{status}")) or 0.0) / total
             for row, total in zip(rows, totals, strict=True)],
            color=STATUS_COLORS[status],
        )
        for status in Status if any(row.get(f"episodes_{status}") for row in rows)
    ]  # fmt: skip
    return Plot(
        "How episodes ended", "of the groups of the step, failed members included", [_step(row) for row in rows], series,
        unit="share", kind="stack", marks=_marks(rows),
    )  # fmt: skip


def _heldout(record: RunRecord) -> Plot | None:
    """Evaluations during training; without any, those before and after it."""
    rows = sorted((row for row in record.heldout if number(row.get("heldout")) is not None), key=lambda row: row["version"])
    meaning = "right attempts over attempts wanted, on tasks that are not trained, with 95% intervals"
    if rows:
        columns = [[number(row.get(key)) for row in rows] for key in ("heldout", "heldout_low", "heldout_high")]
        return Plot("Held-out success", meaning, [float(row["version"]) for row in rows], [Series("held-out", *columns)],
                    unit="share", kind="intervals", x_unit="version", marks=())  # fmt: skip
    details = [record.summary.get(f"heldout_{when}_detail") for when in ("before", "after")]
    places = [0.0, float(max((_step(row) for row in _main(record)), default=1.0))]
    known = [(place, detail) for place, detail in zip(places, details, strict=True) if isinstance(detail, dict)]
    if not known:
        return None
    columns = [[number(detail.get(key)) for _, detail in known] for key in ("success", "low", "high")]
    return Plot("Held-out success", f"before and after: {meaning}", [place for place, _ in known],
                [Series("held-out", *columns)], unit="share", kind="intervals")  # fmt: skip


def _around(values: Values, spread: Values) -> tuple[Values, Values]:
    pairs = [(value, by) if value is not None and by is not None else None for value, by in zip(values, spread, strict=True)]
    return [None if pair is None else pair[0] - pair[1] for pair in pairs], [
        None if pair is None else pair[0] + pair[1] for pair in pairs
    ]


def _over(what: str, of: str) -> _Make:
    def made(row: Row) -> float | None:
        top, bottom = number(row.get(what)), number(row.get(of))
        return top / bottom if top is not None and bottom else None

    return made


def _step(row: Row) -> float:
    return float(row["step"])


def _marks(rows: Sequence[Row], x: str = "step") -> list[float]:
    """Between the rows of two starts of the run."""
    pairs = itertools.pairwise(rows)
    return [(float(one[x]) + float(two[x])) / 2 for one, two in pairs if one.get("attempt") != two.get("attempt")]


def _not_finite(rows: Sequence[Row], keys: Sequence[str]) -> str:
    """What is written as the name of a number that is not finite is a gap, and told."""
    count = sum(row.get(key) in ("nan", "inf", "-inf") for row in rows for key in keys)
    return "" if not count else f"{count} {'value is' if count == 1 else 'values are'} not finite, and no part of the line"


def _there(plots: Sequence[Plot]) -> list[Plot]:
    return list(_not_empty(plots))


def _not_empty(plots: Sequence[Plot]) -> Iterator[Plot]:
    for plot in plots:
        if not plot.empty:
            yield plot
