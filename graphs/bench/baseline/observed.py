"""The two small trainings of the baseline, run and written down: every episode, every row that was trained, every step.

Both begin with the parameters of a short warm start. ``scripted``: a policy that says what a script has, how likely that was
under the weights in force, and the rewards of the calculator. ``sampled``: the engine samples, and digits are rewarded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from flax import nnx

from flow import Graph, Run
from graphs.bench.baseline.script import digits_said, said
from graphs.bench.plain import PlainForward, forced
from graphs.bench.small import SMALL, TRAINER
from graphs.bench.witnessed import SeenStep, targets_of, witnessed
from graphs.calculator import calculator
from graphs.parts import Parts
from graphs.rl import rl
from graphs.rl_config import RlConfig
from graphs.seeds import seeded
from graphs.sft import SftConfig, sft
from stages.episodes import Episodes
from stages.records import BadCall, Episode, Group, Message, ToolCall
from stages.tasks.arithmetic import DEMONSTRATIONS
from stages.tasks.examples import read_examples
from stages.train.metrics import of_the_machine

SEED = 1
"""Of the sampled run, chosen so that no draw is a close call; see ``steady.py``."""
KINDS = ("scripted", "sampled")
WARM_START = SftConfig(steps=30, examples_per_step=16, seed=0, trainer=TRAINER)
"""Short, so that little rounding adds up: enough to call the tool now and then, and to end a turn."""


class EpisodeRecord(msgspec.Struct, frozen=True):
    """An episode that was trained, in plain values."""

    step: int
    """Step that trained it, from 1."""
    group: int
    """Birth number of its group."""
    member: int
    retry: int
    task: str
    """Id of its task."""
    status: str
    said: list[list[str]]
    """Role and text of each message."""
    ids: list[int]
    """Every token."""
    mask: str
    """``1`` where the policy sampled the token, else ``0``."""
    versions: list[int]
    """Of the weights that sampled each of those tokens."""
    reward: float | None
    advantages: list[float]
    """Of each of those tokens."""
    logprobs: list[float]
    """Of each of those tokens, in nats, when it was sampled."""


class StepRecord(msgspec.Struct, frozen=True):
    """A step that was trained, in plain values."""

    step: int
    targets: list[str]
    """What has a gradient, in the order in which it was given."""
    lags: list[int | None]
    counts: dict[str, int | str | None]
    """What the trainer reported in whole numbers or words."""
    figures: dict[str, float]
    """What it reported else, but for the times."""


class RunRecord(msgspec.Struct, frozen=True):
    """One of the trainings."""

    episodes: list[EpisodeRecord]
    """By step, group and member."""
    steps: list[StepRecord]


@dataclass(frozen=True)
class Observed:
    """One of the trainings, as it went here.

    Attributes:
        record: what is compared with what is committed.
        digests: of all bits of the parameters after each step.
        weights: the parameters of each version that something was sampled with, from 0.
        episodes: those of the record, whole.
        ended: (group, member) of each episode, in the order in which they ended.
        seconds: of the graph at work.
    """

    record: RunRecord
    digests: tuple[str, ...]
    weights: tuple[Any, ...]
    episodes: Sequence[Episode]
    ended: tuple[tuple[int, int], ...]
    seconds: float


async def warmed_parts() -> Parts:
    """Model, engine and tasks of both trainings, the model warmed up; their ``load`` puts it back to that.

    The engine is to be opened by whoever runs them.
    """
    parts = calculator(SMALL).parts
    assert parts is not None
    parts.load()
    await Run(sft(WARM_START, parts, read_examples(DEMONSTRATIONS)).build(quiet=True)).finish()
    warmed = jax.tree.map(jnp.array, nnx.state(parts.model, nnx.Param))
    return replace(parts, load=lambda: nnx.update(parts.model, jax.tree.map(jnp.array, warmed)))


async def observe(kind: str, parts: Parts, config: RlConfig) -> Observed:
    """Run one of the trainings, from the parameters of the warm start on.

    Args:
        kind: one of ``KINDS``.
        parts: see ``warmed_parts``; their engine is open.
        config: of the training.
    """
    parts.load()
    first = jax.tree.map(jnp.array, nnx.state(parts.model, nnx.Param))
    watcher, steps = _Watcher(), list[SeenStep]()
    graph = witnessed(graph_of(kind, parts, config), steps.append)
    summary = await Run(graph.build(quiet=True), watchers=(watcher,)).finish()
    groups = watcher.groups
    trained = [(step.number, groups[batch.birth]) for step in steps for batch in step.batches]
    episodes = [episode for _, group in trained for episode in group.episodes]
    record = RunRecord([each for step, group in trained for each in _recorded(step, group)], [_step(step) for step in steps])
    weights = (first, *(jax.tree.map(jnp.array, step.weights.parameters) for step in steps[:-1]))
    digests = tuple(step.digest for step in steps)
    return Observed(record, digests, weights, episodes, tuple(watcher.ended), summary.seconds)


def graph_of(kind: str, parts: Parts, config: RlConfig) -> Graph:
    """The graph of ``rl.py``, with what samples and what rewards as the kind has it."""
    filled = seeded(SMALL.model_copy(update={"rl": config, "seed": SEED})).rl
    if kind == "sampled":
        return rl(filled, replace(parts, reward=digits_said))
    policy = forced(PlainForward(parts.model, parts.engine.context_length), parts, said)
    scripted = Episodes(policy, parts.chat, parts.agent, parts.make_env, filled.sampling, filled.limits)
    return rl(filled, parts).replace("episodes", scripted)


class _Watcher:
    """Keeps the groups that got their advantages, by birth, and the order in which episodes ended."""

    def __init__(self) -> None:
        self.groups: dict[int, Group] = {}
        self.ended: list[tuple[int, int]] = []

    def committed(self, node: str, values: Sequence[Any]) -> None:
        if node == "episodes":
            self.ended += [(episode.birth, episode.member) for episode in values]
        if node == "advantages":
            self.groups.update({group.birth: group for group in values})

    def reported(self, node: str, row: Mapping[str, Any]) -> None:
        """Rows come with the steps."""


def _recorded(step: int, group: Group) -> list[EpisodeRecord]:
    given = group.advantages or ()
    return [_episode(step, episode, advantages) for episode, advantages in zip(group.episodes, given, strict=True)]


def _episode(step: int, episode: Episode, advantages: np.ndarray) -> EpisodeRecord:
    mask = episode.mask
    return EpisodeRecord(
        step=step, group=episode.birth, member=episode.member, retry=episode.retry, task=episode.task.id,
        status=episode.status.value, said=[[message.role, _text(message)] for message in episode.messages],
        ids=episode.ids.tolist(), mask="".join("1" if sampled else "0" for sampled in mask),
        versions=episode.versions[mask].tolist(), reward=episode.reward, advantages=_digits(advantages[mask]),
        logprobs=_digits(episode.logprobs[mask]),
    )  # fmt: skip


def _text(message: Message) -> str:
    """With what it calls behind it."""
    return message.content + "".join(f" {_called(call)}" for call in message.calls)


def _called(call: ToolCall | BadCall) -> str:
    return call.problem if isinstance(call, BadCall) else f"{call.name}({', '.join(map(str, call.arguments.values()))})"


def _step(step: SeenStep) -> StepRecord:
    told = {name: value for name, value in step.row.items() if not of_the_machine(name)}
    figures = {name: value for name, value in told.items() if isinstance(value, float)}
    counts = {name: value for name, value in told.items() if name not in figures}
    return StepRecord(step.number, targets_of(step), list(step.lags), counts, figures)


def _digits(values: np.ndarray) -> list[float]:
    """With as many digits as a float32 has."""
    return [float(f"{value:.9g}") for value in values.tolist()]
