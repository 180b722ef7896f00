"""Repeats a bad update from what was saved of it, and says where it went wrong. Changes nothing on disk.

The programs are those of the trainer, on the same arrays in the same order: on the machine that made it, the gradient norm
comes out to the bit.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np
from flax import nnx

from stages.batches.rows import Rows
from stages.checkpoint.store import load_model
from stages.losses.tokens import Loss, Tokens
from stages.models.critic import ActorCritic
from stages.models.names import named_leaves
from stages.train.bad_steps import FACTS, WEIGHTS, BadStep, exact, loss_settings, platform, read_bad_step, same_bits
from stages.train.config import TrainerConfig
from stages.train.learner import Learner

NUM_WORST = 10
"""Segments that are told of."""


class WorstToken(msgspec.Struct, frozen=True):
    """The token of a segment that the loss pulls at most."""

    segment: str
    """Name of its segment."""
    position: int
    """In the segment, from 0."""
    id: int
    pull: float
    """Derivative of the summed loss by its log-probability."""
    logprob: float
    """Under the parameters."""
    behaviour: float | None
    """When it was sampled; ``None`` for a loss that reads none."""
    advantage: float


class Replayed(msgspec.Struct, frozen=True):
    """What came of it."""

    facts: BadStep
    """As it was saved."""
    loss: float
    grad_norm: float
    same_bits: bool
    """Whether the norm is that of the run, to the bit."""
    same_platform: bool
    """Whether it has to be."""
    not_finite: tuple[str, ...]
    """Gradients with a number that is not finite: path, how many, of how many."""
    worst: tuple[WorstToken, ...]
    """Of the segments whose worst token is pulled at most, in this order; a pull that is not finite comes first."""


def replay(model: nnx.Module, loss: Loss, folder: Path) -> Replayed:
    """Take the gradient of a bad update again.

    Args:
        model: built, and placed, as for the run; what is trained of it is overwritten.
        loss: of the run.
        folder: of the bad step.

    Raises:
        LookupError: there is none.
        ValueError: the loss has other settings, or the model other parameters, than those of the run.
    """
    facts, blocks = read_bad_step(folder)
    folder = folder.parent if folder.name == FACTS else folder
    _check_loss(loss, facts)
    if isinstance(model, ActorCritic):
        model.begin()
    load_model(model, folder / WEIGHTS)
    learner = Learner(model, loss, TrainerConfig.model_validate(facts.config), facts.temperature)
    learner.compile()
    for rows in blocks:
        learner.accumulate(rows, facts.version)
    broken = tuple(_not_finite(learner.accumulated.gradient))
    worst: list[WorstToken] = []
    for at, rows in enumerate(blocks):
        names = [(row, number, name) for block, row, number, name in facts.segments if block == at]
        worst += _worst(rows, *learner.pulls(rows), names, loss.needs.behaviour)
    outcome = learner.update(facts.divisor, exact(facts.bound))
    norm = float(outcome.grad_norm)
    return Replayed(
        facts=facts,
        loss=float(outcome.loss),
        grad_norm=norm,
        same_bits=same_bits(norm, exact(facts.grad_norm)),
        same_platform=facts.platform == platform(),
        not_finite=broken,
        worst=tuple(sorted(worst, key=_strength, reverse=True)[:NUM_WORST]),
    )


def report(replayed: Replayed) -> str:
    """What to print of it, for people."""
    facts = replayed.facts
    bits = "to the bit as in the run" if replayed.same_bits else f"{exact(facts.grad_norm):.9g} in the run"
    if not replayed.same_bits and not replayed.same_platform:
        bits += f", which had {', '.join(facts.platform.values())}"
    tokens = [
        f"  {token.segment}, position {token.position}: token {token.id}, pull {token.pull:.4g}, "
        f"advantage {token.advantage:.4g}, log-probability {token.logprob:.4g}"
        + ("" if token.behaviour is None else f", {token.behaviour:.4g} when sampled")
        for token in replayed.worst
    ]
    return "\n".join(
        [
            f"step {facts.step}: {facts.reason.replace('_', ' ')}",
            f"loss {replayed.loss:.9g}",
            f"gradient norm {replayed.grad_norm:.9g}, {bits}; the bound was {exact(facts.bound):g}",
            f"gradients that are not finite: {'; '.join(replayed.not_finite) or 'none'}",
            "the token that the loss pulls at most, of each of the worst segments:",
            *(tokens or ["  none"]),
        ]
    )


def _check_loss(loss: Loss, facts: BadStep) -> None:
    expected, got = (facts.loss_name, facts.loss_config), (type(loss).__name__, loss_settings(loss))
    if expected != got:
        raise ValueError(f"expected the loss of the run, {expected}, got {got}, in replay; take the settings of that run")


def _not_finite(gradient: Any) -> Iterator[str]:
    for name, leaf in named_leaves(gradient).items():
        count = int((~np.isfinite(jax.device_get(leaf))).sum())
        if count:
            yield f"{name}: {count} of {leaf.size}"


def _worst(
    rows: Rows, tokens: Tokens, pulls_BT: np.ndarray, names: Iterable[tuple[int, int, str]], behaviour: bool
) -> Iterator[WorstToken]:
    """The worst token of each segment of a micro-batch."""
    for row, number, name in names:
        places = np.flatnonzero((rows.segments[row] == number) & rows.mask[row])
        if len(places):
            place = _strongest(places, pulls_BT[row])
            yield WorstToken(
                segment=name,
                position=int(rows.positions[row, place]),
                id=int(rows.ids[row, place]),
                pull=float(pulls_BT[row, place]),
                logprob=float(tokens.logprobs[row, place]),
                behaviour=float(rows.logprobs[row, place]) if behaviour else None,
                advantage=float(rows.advantages[row, place]),
            )


def _strongest(places: np.ndarray, pulls_T: np.ndarray) -> int:
    strengths = np.nan_to_num(np.abs(pulls_T[places]), nan=np.inf)
    return int(places[int(np.argmax(strengths))])


def _strength(token: WorstToken) -> float:
    return abs(token.pull) if np.isfinite(token.pull) else np.inf
