"""What the agentic comparison found, in the form of every experiment: claims, tables, plots, notes."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from agentic_figures import Figures
from agentic_settings import PeersConfig, Setting, size_of

from graphs.bench.experiment import Cell, Claim, Column, Findings, Table
from graphs.report.plots import Plot
from graphs.report.series import Series

RATE = "groups/min"
TIMES = {"tunix": 5.0, "TRL": 3.0}
"""As many complete groups per minute are wanted."""
COMPARED: Mapping[Setting, str] = {"single": "single turn", "turns": "three turns, slow tools"}
TITLES: Mapping[Setting, str] = {
    "single": "Single turn",
    "even": "Single turn with lengths that hardly differ",
    "turns": "Several turns with tools of 50 ms, 500 ms and 5 s",
    "failing": "The same, and a share of the episodes fails",
    "pretrained": "Single turn of SmolLM2-135M",
}


@dataclass(frozen=True)
class Trial:
    """A system in a setting, by one choice.

    Attributes:
        system: name of it.
        label: of the choice.
        figures: of its last try.
        codes: exit status of each try; ``None`` where it hung and was ended.
        peak_bytes: most memory of its processes.
        score: of the weights at the end on the tasks held out; ``None`` where there were none, or it was not asked.
    """

    system: str
    label: str
    figures: Figures
    codes: Sequence[int | None]
    peak_bytes: int
    score: float | None = None

    @property
    def whole(self) -> bool:
        """Whether the last try came to its end."""
        return self.codes[-1] == 0

    @property
    def rate(self) -> float:
        """Complete groups per minute; 0 for a training that did not come to its end."""
        return (self.figures.groups_per_minute or 0.0) if self.whole else 0.0


def best(trials: Sequence[Trial]) -> Mapping[str, Trial]:
    """Of each system its fastest choice, of those that came to their end where any did."""
    found: dict[str, Trial] = {}
    for trial in trials:
        if trial.system not in found or (trial.whole, trial.rate) > (found[trial.system].whole, found[trial.system].rate):
            found[trial.system] = trial
    return found


def findings(config: PeersConfig, found: Mapping[Setting, Sequence[Trial]], before: float | None) -> Findings:
    """All of it.

    Args:
        config: it was measured with.
        found: trials by setting.
        before: what the untrained policy scores in several turns.
    """
    ratios = [one for setting, title in COMPARED.items() if setting in found for one in _ratios(title, best(found[setting]))]
    return Findings(
        answer=_answer(found),
        claims=[*ratios, *_others(found)],
        tables=[_table(config, setting, trials, before) for setting, trials in found.items()],
        plots=[*_plots(found)],
        notes=_notes(config),
        detail={
            setting: [{**asdict(trial), "figures": asdict(trial.figures)} for trial in trials]
            for setting, trials in found.items()
        },
    )


def _ratios(title: str, by_system: Mapping[str, Trial]) -> list[Claim]:
    ours = by_system.get("headrace")
    peers = [by_system[name] for name in TIMES if name in by_system]
    if ours is None:
        return []
    claims = [
        Claim(
            f"{title}: complete groups per minute over those of {peer.system}, its best choice",
            ours.rate / peer.rate if peer.rate else None,
            TIMES[peer.system],
        )
        for peer in peers
    ]
    if (sync := by_system.get("grpo_sync")) is not None and sync.rate:
        claims.append(Claim(f"{title}: the same over those of grpo_sync", ours.rate / sync.rate))
    return claims


def _others(found: Mapping[Setting, Sequence[Trial]]) -> list[Claim]:
    """Figures without a bound, some of which peers win."""
    claims: list[Claim] = []
    for setting, trials in found.items():
        by_system = best(trials)
        ours = by_system.get("headrace")
        for peer in (by_system[name] for name in TIMES if ours is not None and name in by_system):
            assert ours is not None
            pairs = (
                ("time to the first update", ours.figures.first_update_s, peer.figures.first_update_s),
                ("most memory", ours.peak_bytes, peer.peak_bytes),
            )
            claims += [
                Claim(f"{TITLES[setting]}: {what}, ours over that of {peer.system}", one / other)
                for what, one, other in pairs
                if one and other
            ]
    if (failing := best(found.get("failing", ())).get("headrace")) is not None:
        claims.append(
            Claim("Episodes that fail: trainings of ours that broke", sum(code != 0 for code in failing.codes), 0, "equal")
        )
    return claims


def _answer(found: Mapping[Setting, Sequence[Trial]]) -> str:
    said: list[str] = []
    for setting, title in COMPARED.items():
        rates = best(found.get(setting, ()))
        if "headrace" in rates:
            others = ", ".join(f"{name} {trial.rate:.0f}" for name, trial in rates.items() if name != "headrace")
            said.append(f"{title}: headrace {rates['headrace'].rate:.0f}" + (f", {others}" if others else ""))
    return f"Complete groups per minute, each system by its best choice: {'; '.join(said) or 'none measured'}."


def _table(config: PeersConfig, setting: Setting, trials: Sequence[Trial], before: float | None) -> Table:
    columns = [
        Column("system", "system"), Column("choice", "choice"),
        Column("rate", "complete groups per minute", RATE),
        Column("trained", "all groups it trained", RATE),
        Column("first", "first update after", "s"),
        Column("idle", "trainer idle", "share"),
        Column("memory", "most memory", "MB"),
        Column("distinct", "different samples in a group"),
        Column("signal", "samples with an advantage", "1/h"),
        Column("score", "held-out score"),
        Column("tokens", "sampled", "tokens/s"),
        Column("turn", "tokens of a turn"),
        Column("compiled", "programs compiled"),
        Column("later", "of these after the warm-up"),
        Column("failed", "episodes that failed"),
        Column("again", "of these ended well when tried again"),
        Column("codes", "exit codes"),
        Column("broke", "what ended it"),
    ]  # fmt: skip
    updates, warm, groups = size_of(config, setting)
    note = f"{updates} updates of {groups} groups of {config.group_size}; rates without the first {warm}."
    if before is not None and setting in ("turns", "failing"):
        note += f" Before training the held-out score is {before:.3f}."
    return Table(f"{TITLES[setting]}: a row for each choice", columns, [_row(trial) for trial in trials], note)


def _row(trial: Trial) -> dict[str, Cell]:
    figures = trial.figures
    return {
        "system": trial.system,
        "choice": trial.label,
        "rate": figures.groups_per_minute,
        "trained": figures.trained_per_minute,
        "first": figures.first_update_s,
        "idle": figures.idle,
        "memory": trial.peak_bytes / 1e6,
        "distinct": figures.distinct,
        "signal": figures.signal_per_hour,
        "score": trial.score,
        "tokens": figures.tokens_per_s,
        "turn": figures.tokens_per_turn,
        "compiled": figures.compiled,
        "later": figures.compiled_later,
        "failed": figures.failed,
        "again": figures.again,
        "codes": ", ".join("hung" if code is None else str(code) for code in trial.codes),
        "broke": figures.broke,
    }


def _plots(found: Mapping[Setting, Sequence[Trial]]) -> list[Plot]:
    plots: list[Plot] = []
    for setting, trials in found.items():
        series = [
            Series(name, list(trial.figures.rewards)) for name, trial in best(trials).items() if trial.figures.updates > 1
        ]
        longest = max((len(one.values) for one in series), default=0)
        if longest:
            filled = [Series(one.label, [*one.values, *[None] * (longest - len(one.values))]) for one in series]
            plots.append(
                Plot(
                    title=f"Reward by update: {TITLES[setting].lower()}",
                    meaning="mean reward of the complete groups that an update was made of, each system by its best choice",
                    xs=list(range(1, longest + 1)),
                    series=filled,
                    x_unit="update",
                )
            )
    return plots


def _notes(config: PeersConfig) -> list[str]:
    return [
        "All systems load the same weights, letters as tokens, tasks, response budget, group size, learning rate (Adam, "
        "clipped at norm 1), clipped token-mean loss without a reference, and number of updates. The policy is a llama of "
        "4 layers and width 128 that was shown random words, whose lengths have a deviation of the logarithm of "
        f"{config.spread:g}, as the lengths of real replies have a long tail; of {config.even_spread:g} where they hardly "
        "differ, which is what batches of a fixed size are best at. Words earn the same whatever their length. A task's "
        f"delays and failures are the same in all systems, a call takes {config.delays.mean_s:.2f} s on average. headrace "
        "trains the tasks in an order of its own, the others in theirs.",
        "Every figure is worked out of what a system's process told of itself, by the same rules. Held-out scores are all "
        "by headrace's engine, from the weights that a training left.",
        "headrace has a lag of at most 1 version, or is strictly on-policy like TRL, grpo_sync, and tunix where it is not a "
        "batch ahead; rewards by update and held-out scores tell what samples of an older version cost.",
        "tunix 0.1.7 with its in-process sampler, the one that runs without a TPU. Each call of it gets a seed of its "
        "own, without which all members of a group sample the same. Where its budgets are not as they are, the sampler is "
        "asked for the whole budget and what is over is cut off, without which each number of tokens left is compiled "
        "anew. It has no retry of an episode: one that raises ends the training, so the choice is to end, or to count the "
        "failure as a reward of 0, whose group is not complete. The end token is not trained.",
        "TRL 1.16.0 on torch's CPU build with transformers' generate, which is what it has without a GPU: its "
        "asynchronous trainer and its vLLM modes need one. Episodes are played by a rollout function, its way for worlds "
        "of one's own, written so that no episode waits for another one's tool, and with a retry of episodes that fail. "
        "Its own loop over tools waits for those of one episode after another; that was read in its source and not "
        "measured.",
        "No system has a cache of compiled programs from before. SmolLM2-135M's positions are turned with a base of "
        '1,000,000, the only one that tunix\'s Llama has, so its words are poor; the word "the" ends a turn.',
    ]
