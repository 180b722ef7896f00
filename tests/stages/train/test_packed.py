"""Gradients over packed rows of several shapes, against each segment in a row of its own; and with blocks worked out again."""

from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx

from stages.batches.rows import RowFiller, Rows
from stages.losses.policy import PolicyLoss
from stages.models.config import ModelConfig
from stages.models.transformer import Transformer
from stages.records import Segment
from stages.train.step import make_objective, make_read

pytestmark = pytest.mark.slow  # A program for each shape.

CONFIG = ModelConfig(
    vocab_size=31, width=16, num_layers=2, num_heads=4, num_kv_heads=2, head_size=4, mlp_width=24, context_length=320
)
LENGTHS = (150, 90, 60, 38, 20, 150, 12, 40, 9)
LOSS = PolicyLoss()


def segment(random: np.random.Generator, length: int) -> Segment:
    mask = (np.arange(length) >= 3) & (random.random(length) < 0.8)
    advantages, logprobs = random.normal(size=(2, length)).astype(np.float32)
    return Segment(
        random.integers(0, 31, length).astype(np.int32), mask, advantages, -3.4 + 0.3 * logprobs, weight=1.0 / length
    )


def objective(remat: bool = False, num_layers: int = 2) -> tuple[Any, Any]:
    """Gradient of the summed loss, jitted, and parameters."""
    config = CONFIG.model_copy(update={"num_layers": num_layers})
    graphdef, parameters = nnx.split(Transformer(config, nnx.Rngs(0)), nnx.Param)
    dtypes = tuple(leaf.dtype for leaf in jax.tree.leaves(parameters))
    summed = make_objective(make_read(graphdef, dtypes, LOSS, 0.8, remat), LOSS)
    return jax.jit(jax.value_and_grad(summed, has_aux=True)), parameters


def total(gradient: Any, parameters: Any, blocks: list[Rows]) -> tuple[float, list[np.ndarray]]:
    """Loss and gradient, summed over micro-batches."""
    found = [gradient(parameters, nnx.State({}), block, np.int32(0)) for block in blocks]
    leaves = [jax.tree.leaves(of_block) for _, of_block in found]
    return float(sum(loss for (loss, _), _ in found)), [np.sum(same, axis=0) for same in zip(*leaves, strict=True)]


def filled(segments: list[Segment], shapes: tuple[tuple[int, int], ...]) -> list[Rows]:
    filler = RowFiller(shapes)
    return filler.add([(one,) for one in segments]) + filler.flush()


def test_packed_rows_give_the_loss_and_gradient_of_segments_alone():
    """S73: of every parameter, within float32 rounding; rows of 160 tokens go block by block, those of 40 do not."""
    random = np.random.default_rng(0)
    segments = [segment(random, length) for length in LENGTHS]
    gradient, parameters = objective(num_layers=1)
    packed = filled(segments, ((1, 160), (4, 40)))
    assert len({block.shape for block in packed}) > 1
    loss, leaves = total(gradient, parameters, packed)
    alone, wanted = total(gradient, parameters, [block for one in segments for block in filled([one], ((1, 160),))])
    np.testing.assert_allclose(loss, alone, rtol=1e-5)
    for mine, other in zip(leaves, wanted, strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-6 * np.abs(other).max() + 1e-6)


def test_blocks_worked_out_again_change_no_number_and_need_less_memory():
    random = np.random.default_rng(1)
    (rows,) = filled([segment(random, 300)], ((1, 320),))
    held, numbers = {}, {}
    for remat in (False, True):
        gradient, parameters = objective(remat)
        program = gradient.lower(parameters, nnx.State({}), rows, np.int32(0)).compile()
        held[remat] = program.memory_analysis().temp_size_in_bytes
        numbers[remat] = total(program, parameters, [rows])
    np.testing.assert_allclose(numbers[True][0], numbers[False][0], rtol=1e-6)
    for mine, other in zip(numbers[True][1], numbers[False][1], strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-6)
    assert held[True] < held[False]
