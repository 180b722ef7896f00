"""A program: graphs that run one after another over the same parts. No I/O here; ``runs.execute`` runs one.

A phase makes its graph when the program is checked or run, with a place for checkpoints where there is one.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from flow import Graph
from graphs.dpo import DpoConfig, dpo, reference_of
from graphs.evaluate import EvaluateConfig, evaluate
from graphs.fitting import check_apart, check_demonstrations, check_preferences, check_rows, eviction_warning
from graphs.parts import Parts
from graphs.rl import rl, scoring_of
from graphs.rl_config import RlConfig
from graphs.scoring import Scoring
from graphs.sft import SftConfig, sft
from stages.agents.agent import sessions_of
from stages.losses.supervised import SupervisedLoss
from stages.losses.tokens import Loss
from stages.records import Example, Preference
from stages.rewards.shuffled import Shuffled
from stages.scores import Scores
from stages.train.config import TrainerConfig
from stages.train.gate import Gate


async def _nothing() -> None:
    pass


@dataclass(frozen=True)
class Training:
    """What a trainer of a phase is made of, to tell its memory before there is one.

    Attributes:
        config: optimizer and micro-batches.
        loss: of the objective.
        temperature: that episodes are sampled at.
        scoring: what scores its groups; ``None`` without.
    """

    config: TrainerConfig
    loss: Loss
    temperature: float = 1.0
    scoring: Scoring | None = None


@dataclass(frozen=True)
class Phase:
    """One graph of a program.

    Attributes:
        name: id in reports and metrics.
        title: one line for people.
        make: makes the graph; the argument is the run's folder, ``None`` where nothing is to be saved.
        total: steps of its collecting sink, or items of its plain one; what progress is measured against.
        main: whether the run's summary speaks of this phase.
        check: called before anything runs; raises what the user must mend.
        warnings: what is allowed and probably not meant.
        prepare: awaited before the graph runs.
        result: read after it ran; goes into the summary.
        training: its trainer; ``None`` where nothing is trained.
        report: read however it ended; goes into the summary.
        recorded: settings of reinforcement learning, whose steps can be trained again from what a run recorded; ``None`` where
            they are the same whenever they are run.
        evaluates: whether it measures the model as it is, and changes nothing.
        starts_over: whether it begins again where the run is resumed in the middle of it, as what cannot be saved does.
    """

    name: str
    title: str
    make: Callable[[Path | None], Graph]
    total: int | None = None
    main: bool = False
    check: Callable[[], None] = lambda: None
    warnings: Sequence[str] = ()
    prepare: Callable[[], Awaitable[None]] = _nothing
    result: Callable[[], Mapping[str, Any]] = field(default=dict[str, Any])
    training: Training | None = None
    report: Callable[[], Mapping[str, Any]] = field(default=dict[str, Any])
    recorded: RlConfig | None = None
    evaluates: bool = False
    starts_over: bool = False


@dataclass(frozen=True)
class Program:
    """What ``headrace run`` runs.

    Attributes:
        name: name in the catalogue.
        config: what it was made from, written into the run's folder.
        parts: what its graphs share; ``None`` for a graph of the user's own that brings everything itself.
        phases: in order.
        max_lag: bound on staleness, for the summary; ``None`` where no phase has one.
        made_by: what makes it again: a name of the catalogue, or ``path/to/file.py:function``; ``None`` for neither.
    """

    name: str
    config: BaseModel | None
    parts: Parts | None
    phases: Sequence[Phase]
    max_lag: int | None = None
    made_by: str | None = None


def warm_start(config: SftConfig, parts: Parts, examples: tuple[Example, ...]) -> Phase:
    """Supervised training that is not saved: the phases after it start from its weights."""
    title = f"warm start: {config.steps} steps of {config.examples_per_step} of {len(examples)} demonstrations"
    return Phase(
        "warm_start",
        title,
        lambda folder: sft(config, parts, examples),
        total=config.steps,
        check=_sft_check(config, parts, examples),
        training=Training(config.trainer, SupervisedLoss()),
    )


def _sft_check(config: SftConfig, parts: Parts, examples: tuple[Example, ...]) -> Callable[[], None]:
    def check() -> None:
        check_demonstrations(examples, parts.chat, parts.tools, config.trainer.row_length)
        questions = (message.content for example in examples for message in example.messages if message.role == "user")
        check_apart(questions, parts.heldout, "the demonstrations")

    return check


def training(config: RlConfig, parts: Parts, *, shuffled: bool = False) -> Phase:
    """Reinforcement learning, saved in the run's folder; the summary says what its gate did."""
    gates: list[Gate] = []

    def make(folder: Path | None) -> Graph:
        gates[:] = [Gate(config.gate)]
        graph = rl(config, parts, folder, gates[0])
        return graph.replace("rewards", Shuffled(parts.rewards(), config.sampling.seed or 0)) if shuffled else graph

    title = f"rl: {config.steps} steps of {config.groups_per_step} groups of {config.group_size}, max_lag {config.max_lag}"
    title += ", each after a barrier over the whole batch" if config.barrier == "batch" else ""

    def check() -> None:
        check_rows(config.trainer.row_length, parts.engine.context_length)
        check_apart((task.prompt for task in parts.train), parts.heldout, "the training tasks")

    evicted = eviction_warning(
        (config.max_concurrency + config.heldout.concurrency) * sessions_of(parts.agent),
        parts.engine.config,
        config.sampling.max_turns,
    )
    warnings = () if evicted is None else (evicted,)
    trained = Training(config.trainer, config.loss, config.sampling.temperature, scoring_of(config, parts))
    return Phase(
        "rl", title, make, total=config.steps, main=True, check=check, warnings=warnings, training=trained,
        report=lambda: {"gate": gates[0].report()}, recorded=config,
    )  # fmt: skip


def supervised(config: SftConfig, parts: Parts, examples: tuple[Example, ...]) -> Phase:
    """Supervised training, saved in the run's folder."""
    title = f"sft: {config.steps} steps of {config.examples_per_step} of {len(examples)} demonstrations"

    def make(folder: Path | None) -> Graph:
        return sft(config, parts, examples, folder)

    check, trained = _sft_check(config, parts, examples), Training(config.trainer, SupervisedLoss())
    return Phase("sft", title, make, total=config.steps, main=True, check=check, training=trained)


def preferring(config: DpoConfig, parts: Parts, preferences: tuple[Preference, ...]) -> Phase:
    """Training on preferences, saved in the run's folder."""
    title = f"dpo: {config.steps} steps of {config.pairs_per_step} of {len(preferences)} preferences"

    def make(folder: Path | None) -> Graph:
        return dpo(config, parts, preferences, folder)

    def check() -> None:
        check_preferences(preferences, parts.chat, parts.tools, config.trainer.row_length)
        questions = (message.content for pair in preferences for message in pair.prompt if message.role == "user")
        check_apart(questions, parts.heldout, "the preferences")

    trained = Training(config.trainer, config.loss, scoring=reference_of(config, parts))
    return Phase("dpo", title, make, total=config.steps, main=True, check=check, training=trained)


def evaluation(name: str, config: EvaluateConfig, parts: Parts, *, main: bool = False) -> Phase:
    """Held-out evaluation of the weights as they are then; the summary gets ``name`` and ``name_detail``."""
    wanted = len(parts.heldout) * config.attempts
    latest: list[Scores] = []

    def make(folder: Path | None) -> Graph:
        latest[:] = [Scores(len(parts.heldout), config.attempts, config.pass_at)]
        return evaluate(config, parts, latest[0], name)

    def result() -> dict[str, Any]:
        score = latest[0].score()
        return {name: score.success, f"{name}_detail": score}

    title = f"{name.replace('_', ' ')}: {wanted} episodes on {len(parts.heldout)} held-out tasks"
    return Phase(name, title, make, len(parts.heldout), main, prepare=parts.load_engine, result=result, evaluates=True)
