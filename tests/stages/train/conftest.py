"""A model that compiles in no time, batches for it, and a trainer that runs over them."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from flax import nnx

from flow import testing
from stages.batches.pack import make_batch
from stages.losses.policy import PolicyLoss
from stages.models.logprobs import Head
from stages.records import Batch, Segment
from stages.train.config import TrainerConfig
from stages.train.trainer import Trainer, TrainerState

VOCAB, ROW = 11, 12


class Bag(nnx.Module):
    """Predicts from the sum of what its segment held so far."""

    def __init__(self, rngs: nnx.Rngs, dtype: Any) -> None:
        self.embedding = nnx.Param((0.5 * jax.random.normal(rngs.params(), (VOCAB, 6))).astype(dtype))
        self.projection = nnx.Param((0.5 * jax.random.normal(rngs.params(), (6, VOCAB))).astype(dtype))
        self.norm = nnx.Param(jnp.ones(6))

    def __call__(self, *packed: jax.Array) -> jax.Array:
        return self.hidden(*packed) @ self.head.projection_VW.T

    def hidden(self, ids_BT: jax.Array, positions_BT: jax.Array, segments_BT: jax.Array, remat: bool = False) -> jax.Array:
        length = ids_BT.shape[1]
        seen_BTT = (segments_BT[:, :, None] == segments_BT[:, None, :]) & jnp.tril(jnp.ones((1, length, length), bool))
        weights_BTT = seen_BTT / (1.0 + positions_BT[:, :, None])
        return jnp.tanh(weights_BTT @ self.embedding[...].astype(jnp.float32)[ids_BT]) * self.norm[...][None, None]

    @property
    def head(self) -> Head:
        return Head(self.projection[...].T.astype(jnp.float32))


class Ran(NamedTuple):
    """What came of a run.

    Attributes:
        model: with its last parameters.
        rows: of metrics.
        published: parameters after each step.
        trainer: closed.
    """

    model: nnx.Module
    rows: list[dict[str, Any]]
    published: list[Any]
    trainer: Trainer


def tiny_model(seed: int = 0, dtype: Any = jnp.float32) -> Bag:
    return Bag(nnx.Rngs(seed), dtype)


def random_segment(random: np.random.Generator, length: int = 6, name: str = "segment") -> Segment:
    mask = np.arange(length) >= 2
    return Segment(
        ids=random.integers(0, VOCAB, length).astype(np.int32),
        mask=mask,
        advantages=np.full(length, random.normal(), np.float32),
        logprobs=np.where(mask, -random.uniform(1.5, 3.0, length), np.nan).astype(np.float32),
        versions=np.where(mask, 0, -1).astype(np.int32),
        name=name,
    )


def random_batches(sizes: Sequence[int], seed: int = 0) -> list[Batch]:
    """One batch for each size, of that many segments."""
    random = np.random.default_rng(seed)
    return [
        make_batch(birth, [(random_segment(random, name=f"{birth}.{member}"),) for member in range(size)])
        for birth, size in enumerate(sizes)
    ]


def tiny_trainer(model: nnx.Module, *arguments: Any, loss: Any = None, **settings: Any) -> Trainer:
    """Settings of ``Trainer`` and of its config, in one."""
    own = {name: settings.pop(name) for name in ("temperature", "whiten", "follow", "samples", "clock") if name in settings}
    config = TrainerConfig(**{"row_length": ROW, "rows_per_microbatch": 2, "learning_rate": 0.01, **settings})
    return Trainer(model, loss or PolicyLoss(), config, *arguments, **own)


def keep_arrays(trainer: Trainer, folder: Path) -> None:
    """What a commit does with a trainer."""
    trainer.save(folder)()
    (folder / "state").write_bytes(msgspec.msgpack.encode(trainer.state()))


def take_up_arrays(trainer: Trainer, folder: Path) -> None:
    """What a run that goes on does with an open one."""
    trainer.load(folder)
    trainer.restore(msgspec.msgpack.decode((folder / "state").read_bytes(), type=TrainerState))


def run_steps(
    steps: Sequence[Sequence[Batch]],
    *arguments: Any,
    model: nnx.Module | None = None,
    since: Path | None = None,
    until: Path | None = None,
    **settings: Any,
) -> Ran:
    """Run a trainer over steps of batches.

    Args:
        steps: batches of each.
        arguments: of ``Trainer``.
        model: what is trained; ``None`` for a tiny one.
        since: what it goes on from.
        until: where it is kept after each step, until the next.
        settings: of ``Trainer`` and its config.
    """
    model = model or tiny_model()
    ran = Ran(model, [], [], trainer := tiny_trainer(model, *arguments, **settings))
    context = testing.context(node="trainer", report=ran.rows.append)
    trainer.open()
    if since is not None:
        take_up_arrays(trainer, since)
    try:
        for step in steps:
            for batch in step:
                trainer.add(batch, context)
            ran.published.append(trainer.finish(context).parameters)
            if until is not None:
                shutil.rmtree(until, ignore_errors=True)
                keep_arrays(trainer, until)
    finally:
        trainer.close()
    return ran


def all_numbers(parameters: Any) -> np.ndarray:
    return np.concatenate([np.ravel(np.asarray(leaf, np.float32)) for leaf in jax.tree.leaves(parameters)])


@pytest.fixture(scope="session")
def tiny() -> Callable[..., Bag]:
    return tiny_model


@pytest.fixture(scope="session")
def segment() -> Callable[..., Segment]:
    return random_segment


@pytest.fixture(scope="session")
def batches() -> Callable[..., list[Batch]]:
    return random_batches


@pytest.fixture(scope="session")
def trainer() -> Callable[..., Trainer]:
    return tiny_trainer


@pytest.fixture(scope="session")
def train() -> Callable[..., Ran]:
    return run_steps


@pytest.fixture(scope="session")
def keep() -> Callable[[Trainer, Path], None]:
    return keep_arrays


@pytest.fixture(scope="session")
def take_up() -> Callable[[Trainer, Path], None]:
    return take_up_arrays


@pytest.fixture(scope="session")
def flat() -> Callable[[Any], np.ndarray]:
    return all_numbers
