"""Has the engine, and then a trainer, work alone for a moment, so that a trace tells what their steps take."""

import asyncio
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from flax import nnx

from flow.testing import context
from graphs.parts import Parts
from graphs.plan.steps import Window
from graphs.rl import scoring_of
from graphs.rl_config import RlConfig
from stages.policy import SampleRequest
from stages.records import Batch
from stages.train.trainer import Trainer

TOKENS = 48
"""Decode steps of a measurement of one size."""
TIMES = 8
"""Prefill steps of a measurement of one size."""
TRAINED = 3
"""Steps of a trainer, the first of which does not count."""
_SEED = 2**30
"""Of requests that no episode makes."""


class Clocked:
    """When something began and ended, once it is over."""

    window: Window


@contextmanager
def clocked() -> Generator[Clocked]:
    """Note when what is inside began and ended."""
    clock, began_ns, processor_s = Clocked(), time.monotonic_ns(), time.process_time()
    yield clock
    clock.window = Window(began_ns, time.monotonic_ns(), time.process_time() - processor_s)


async def engine_alone(parts: Parts) -> tuple[Window, Window]:
    """Have an open engine make some steps of each size.

    Returns:
        All of it; and of that the decode steps of all slots, with nothing read in but at their beginning.
    """
    engine, vocabulary = parts.engine, parts.model.config.vocab_size
    chunk = min(engine.config.prefill_chunk, engine.context_length - TOKENS - 1)
    random = np.random.default_rng(0)

    async def ask(number: int, session: str, context_tokens: int, tokens: int) -> None:
        ids = random.integers(0, vocabulary, context_tokens).astype(np.int32)
        request = SampleRequest(ids, tokens, (), 1.0, (_SEED, 0, number, 0, 0), session)
        try:
            await engine.sample(request)
        finally:
            engine.release(session)

    async def together(kind: str, count: int, context_tokens: int, tokens: int) -> None:
        await asyncio.gather(*(ask(one, f"plan/{kind}/{count}/{one}", context_tokens, tokens) for one in range(count)))

    with clocked() as all_of_it:
        for rows in engine.prefill_buckets:
            for number in range(TIMES):
                await together(f"prefill {number}", min(rows, engine.config.slots), chunk + 1, 1)
        for rows in engine.decode_buckets:
            with clocked() as full:
                await together("decode", rows, 2, TOKENS)
    return all_of_it.window, full.window


@dataclass(frozen=True)
class TrainerAlone:
    """What a trainer did alone.

    Attributes:
        steps: when.
        gradient_bytes: that a micro-batch works in; ``None`` where the platform does not say.
    """

    steps: Sequence[Window]
    gradient_bytes: int | None


async def trainer_alone(config: RlConfig, parts: Parts, batches: Sequence[Batch], rows: int) -> TrainerAlone:
    """Have a trainer with micro-batches of so many rows train some steps, and leave the model as it was.

    Args:
        config: of the training.
        parts: of its program.
        batches: of some steps, in birth order.
        rows: of a micro-batch.

    Returns:
        Its steps but for the first, and what it worked in.
    """
    settings = config.trainer.model_copy(update={"rows_per_microbatch": rows})
    asked = scoring_of(config, parts)
    trainer = Trainer(
        asked.model, config.loss, settings, temperature=config.sampling.temperature, whiten=config.advantages.whiten,
        follow=asked.follow, hold=config.barrier == "batch",
    )  # fmt: skip
    kept = jax.tree.map(lambda leaf: leaf.copy(), nnx.state(parts.model, nnx.Param))
    try:
        async with trainer:
            windows = await asyncio.to_thread(_train, trainer, _in_steps(batches, config.groups_per_step))
            assert trainer.last_row is not None
            return TrainerAlone(windows, int(trainer.last_row["temporary_bytes"] or 0) or None)
    finally:
        nnx.update(parts.model, kept)


def _train(trainer: Trainer, steps: Sequence[Sequence[Batch]]) -> Sequence[Window]:
    told: Any = context(node="trainer", lag=0)
    windows: list[Window] = []
    for number in range(TRAINED):
        with clocked() as step:
            for batch in steps[number % len(steps)]:
                trainer.add(batch, told)
            trainer.finish(told)
        windows.append(step.window)
    return windows[1:]


def _in_steps(batches: Sequence[Batch], size: int) -> Sequence[Sequence[Batch]]:
    return [batches[at : at + size] for at in range(0, len(batches) - size + 1, size)]
