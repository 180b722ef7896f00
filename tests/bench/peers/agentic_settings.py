"""What the agentic comparison measures: its settings, the work of each, and the choices that each system is tried with."""

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from agentic_world import Task, Workload
from pydantic import BaseModel, ConfigDict, Field

from graphs.bench.delays import DelaysConfig, delay_of, fails_at_once
from stages.text.characters import CharacterVocabulary

Setting = Literal["single", "even", "turns", "failing", "pretrained"]
SYSTEMS = ("headrace", "grpo_sync", "tunix", "TRL")
PROMPT = 6
"""Letters of a prompt; three marks stand around it."""
MARKS = {0: "<|pad|>", 1: "<|bos|>", 3: "<|user|>", 4: "<|assistant|>"}
"""Marks in the vocabulary of SmolLM2, in the places of marks of its own."""


class PeersConfig(BaseModel):
    """Training with tools against tunix and TRL."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    settings: tuple[Setting, ...] = ("single", "even", "turns", "failing", "pretrained")
    """Which: single turn; the same with lengths that hardly differ; three turns with slow tools; the same with episodes that
    fail; a single turn of SmolLM2-135M."""
    systems: tuple[str, ...] = SYSTEMS
    """Which, by name."""
    group_size: int = Field(default=8, ge=2)
    """Episodes of a task."""
    groups_per_update: int = Field(default=8, ge=1)
    """Tasks of an update."""
    updates: int = Field(default=9, ge=2)
    """Updates of a training."""
    warm: int = Field(default=3, ge=1)
    """Updates at the beginning that rates leave out: programs are compiled in them."""
    turns: int = Field(default=3, ge=2)
    """Turns of an episode in the settings with tools."""
    delays: DelaysConfig = DelaysConfig()
    """Of the answer to a turn that is not the last one."""
    failing: float = Field(default=0.05, gt=0, lt=1)
    """Share of the episodes that fail when their first turn is to be answered, in the setting that has such."""
    response_tokens: int = Field(default=192, ge=8)
    """Most tokens of an episode after its prompt."""
    spread: float = Field(default=0.8, ge=0)
    """Deviation of the logarithm of the letters in a turn: with 0.8 the longest of a hundred has five times the mean."""
    even_spread: float = Field(default=0.1, ge=0)
    """The same where lengths hardly differ."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """Of Adam; a hundredth of it for SmolLM2."""
    heldout: int = Field(default=32, ge=1)
    """Tasks that all weights are scored on, each once for every member of a group."""
    pretrained_updates: int = Field(default=3, ge=2)
    """Updates with SmolLM2; one of them is the warm-up."""
    pretrained_groups: int = Field(default=2, ge=1)
    """Tasks of each of these."""
    tries: int = Field(default=3, ge=1)
    """How often a training that broke is begun again."""
    timeout_s: float = Field(default=420.0, gt=0)
    """After which a training is taken to hang."""
    seed: int = Field(default=0, ge=0)
    """Of tasks, delays, failures and sampling."""


def size_of(config: PeersConfig, setting: Setting) -> tuple[int, int, int]:
    """Updates of a training, those of the warm-up, and tasks of an update."""
    if setting == "pretrained":
        return config.pretrained_updates, 1, config.pretrained_groups
    return config.updates, config.warm, config.groups_per_update


class Choice(NamedTuple):
    """How a system is run.

    Attributes:
        system: name of it.
        label: of the choice; empty where there is but one.
        script: its program.
        settings: of that.
        environment: variables.
    """

    system: str
    label: str
    script: str
    settings: Mapping[str, Any]
    environment: Mapping[str, str]


def choices(config: PeersConfig, setting: Setting) -> list[Choice]:
    """What is tried in a setting, of the systems that are wanted."""
    _, _, groups = size_of(config, setting)
    episodes = config.group_size * groups
    found = [*_headrace(setting, episodes), *_tunix(setting, episodes, groups), *_trl(setting, episodes)]
    return [choice for choice in found if choice.system in config.systems]


def _headrace(setting: Setting, episodes: int) -> list[Choice]:
    def choice(system: str, label: str, lag: int, slots: int, barrier: str = "group") -> Choice:
        settings = {"max_lag": lag, "barrier": barrier, "concurrency": (lag + 1) * episodes, "slots": slots}
        return Choice(system, label, "agentic_headrace.py", settings, {"JAX_PLATFORMS": "cpu"})

    ahead = choice("headrace", "lag 1, a slot for every episode", 1, 2 * episodes)
    half = choice("headrace", "lag 1, a slot for every other episode", 1, episodes)
    strict, sync = choice("headrace", "strictly on-policy", 0, episodes), choice("grpo_sync", "", 0, episodes, "batch")
    if setting == "pretrained":
        return [ahead]
    if setting == "failing":
        return [ahead, sync]
    return [ahead, half, strict] if setting == "even" else [ahead, half, strict, sync]


def _tunix(setting: Setting, episodes: int, groups: int) -> list[Choice]:
    one, two = {"JAX_PLATFORMS": "cpu"}, {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}

    def choice(label: str, concurrency: int, off_policy: int = 0, **more: Any) -> Choice:
        settings = {"concurrency": concurrency, "off_policy": off_policy, "budget": "constant", "on_failure": "raise", **more}
        micro = {"micro": groups}
        return Choice("tunix", label, "agentic_tunix.py", {**micro, **settings}, two if off_policy else one)

    if setting == "single":
        return [choice(f"{at_once} at once", at_once) for at_once in (1, 4, 8, 16)]
    if setting == "even":
        return [choice("8 at once", 8)]
    if setting == "turns":
        return [
            choice("16 at once, budgets as they are", 16, budget="exact"),
            choice("16 at once", 16),
            choice("all at once", episodes),
            choice("all at once, a batch ahead", 2 * episodes, off_policy=1),
        ]
    if setting == "failing":
        return [
            choice("all at once, failures raise", episodes),
            choice("all at once, failures earn 0", episodes, on_failure="zero"),
        ]
    return [choice("4 at once", 4, micro=1)]


def _trl(setting: Setting, episodes: int) -> list[Choice]:
    def choice(label: str, micro: int = episodes, ready: bool = True, threads: int | None = None) -> Choice:
        return Choice("TRL", label, "agentic_trl.py", {"micro": micro, "ready": ready, "threads": threads}, {})

    if setting in ("single", "even"):
        few = choice("one thread, micro-batches of a quarter", micro=max(1, episodes // 4), threads=1)
        return [choice("two threads"), choice("one thread", threads=1), few]
    if setting == "turns":
        return [
            choice("whoever is ready"),
            choice("whoever is ready, one thread", threads=1),
            choice("turn by turn", ready=False),
        ]
    if setting == "failing":
        return [choice("whoever is ready"), choice("whoever is ready, one thread", threads=1)]
    return [choice("micro-batches of 8", micro=min(8, episodes))]


def workload_of(config: PeersConfig, setting: Setting, model: Path, pretrained: Path) -> Workload:
    """The work of a setting.

    Args:
        config: of the comparison.
        setting: which.
        model: folder of the small model.
        pretrained: folder of SmolLM2, and beside it ``tokens.json``.
    """
    large = setting == "pretrained"
    updates, _, groups = size_of(config, setting)
    failing = config.failing if setting == "failing" else 0.0
    turns = config.turns if setting in ("turns", "failing") else 1
    names = [f"train {number}" for number in range(updates * groups)]
    return Workload(
        model=str(pretrained if large else model),
        tokens=json.loads((pretrained.parent / "tokens.json").read_text()) if large else CharacterVocabulary().tokens,
        tasks=_tasks(config, names, turns, failing),
        group_size=config.group_size,
        groups_per_update=groups,
        updates=updates,
        turns=turns,
        prompt_tokens=PROMPT + 3,
        response_tokens=32 if large else config.response_tokens,
        learning_rate=config.learning_rate / 100 if large else config.learning_rate,
        spread=config.even_spread if setting == "even" else config.spread,
        seed=config.seed,
    )


def heldout_of(config: PeersConfig, turns: int, model: Path) -> Workload:
    """Tasks that nobody was trained on, whose tools take no time."""
    names = [f"heldout {number}" for number in range(config.heldout)]
    quick = config.model_copy(update={"delays": DelaysConfig(seconds=(0.0,), shares=(1.0,))})
    trained = workload_of(config, "turns" if turns > 1 else "single", model, model)
    return trained._replace(tasks=_tasks(quick, names, turns, 0.0), seed=config.seed + 1)


def _tasks(config: PeersConfig, names: Sequence[str], turns: int, failing: float) -> list[Task]:
    letters = "abcdefghijklmnopqrstuvwxyz"
    members = range(config.group_size)
    return [
        Task(
            name,
            "".join(random.Random(f"{config.seed} {name}").choices(letters, k=PROMPT)),
            [[delay_of(config.delays, name, member, turn) for turn in range(turns - 1)] for member in members],
            [fails_at_once(failing, config.seed, name, member) for member in members],
        )
        for name in names
    ]
