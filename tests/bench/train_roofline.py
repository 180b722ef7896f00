"""A training step against the machine's own matrix products, and its memory against what it cannot do without.

Work is what a step on packed rows needs and nothing else: forward and backward of every matrix product for every token (6
times parameters of the blocks times tokens), attention within segments only, the projection to the vocabulary for targets
only. What is worked out again in the backward pass, padding, norms, softmax and the optimizer count as nothing. The rate is
measured here, in the same rounds: those matrix products alone, of one block and of one chunk of targets, forward and
backward.

Memory: parameters, gradients summed so far, the gradient being added, two moments, and of the activations what no matrix
product has to be run again for (residual stream twice, queries, keys, values, what was attended to, gate, up). Against it
stand the bytes of all arrays that rest and what the largest program works in, as its compiler tells, and the most the process
ever held.

The shape is that of SmolLM2-135M in float32 with random weights, two rows of 1024 tokens, segments with a heavy tail, a
quarter of each of them prompt. Arguments: layers, where it is to be a shorter model than 30; rounds.
"""

import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from stages.batches.pack import make_batch
from stages.batches.rows import RowFiller, Rows
from stages.losses.policy import PolicyLoss
from stages.models.config import ModelConfig
from stages.models.logprobs import CHUNK_LOGITS
from stages.models.transformer import Transformer
from stages.records import Segment
from stages.train.config import TrainerConfig
from stages.train.learner import Learner

VOCABULARY, WIDTH, HEADS, KEY_HEADS, HEAD, HIDDEN = 49152, 576, 9, 3, 64, 1536
ROWS, LENGTH = 2, 1024
BLOCK_MATRICES = ((WIDTH, HEADS * HEAD), (WIDTH, KEY_HEADS * HEAD), (WIDTH, KEY_HEADS * HEAD), (HEADS * HEAD, WIDTH),
                  (WIDTH, HIDDEN), (WIDTH, HIDDEN), (HIDDEN, WIDTH))  # fmt: skip


def main(num_layers: str = "30", rounds: str = "3") -> None:
    """Prints a line for each setting, then the result as JSON."""
    config = ModelConfig(
        vocab_size=VOCABULARY, width=WIDTH, num_layers=int(num_layers), num_heads=HEADS, num_kv_heads=KEY_HEADS, head_size=HEAD,
        mlp_width=HIDDEN, context_length=LENGTH,
    )  # fmt: skip
    rows, lengths, targets = packed()
    found = {remat: measured(config, remat, rows, lengths, targets, int(rounds)) for remat in ("none", "block")}
    for remat, detail in found.items():
        print(
            f"remat {remat}: {detail['step_s']:.1f} s for {sum(lengths)} tokens, {targets} of them targets; "
            f"{detail['of_products']:.2f} of the products' rate ({detail['products_gigaflops_per_s']:.0f} gigaflops/s), "
            f"{detail['of_products_processor']:.2f} by processor time; {detail['held_gigabytes']:.2f} GB against a floor of "
            f"{detail['floor_gigabytes']:.2f}",
            flush=True,
        )
    ratios = {"of_products": found["none"]["of_products"], "memory_of_floor": found["none"]["memory_of_floor"]}
    print(json.dumps({"bench": "train_roofline", "ratios": ratios, "targets": {"of_products": 0.5}, "detail": found}))


def packed() -> tuple[Rows, list[int], int]:
    """One full micro-batch, the lengths of its segments, and its number of targets."""
    random = np.random.default_rng(0)
    filler, lengths = RowFiller(((ROWS, LENGTH),)), []
    while True:
        length = int(np.clip(LENGTH * 0.12 * np.exp(random.normal()), 8, LENGTH))
        arrays = random.normal(size=(2, length)).astype(np.float32)
        mask = np.arange(length) >= max(length // 4, 1)
        ids = random.integers(0, VOCABULARY, length).astype(np.int32)
        full = filler.add(make_batch(0, [(Segment(ids, mask, arrays[0], -np.abs(arrays[1])),)]).units)
        if full:
            rows = full[0]
            numbers = [row[row > 0] for row in rows.segments]
            lengths = [int((row == number).sum()) for row in numbers for number in np.unique(row)]
            return rows, lengths, int(rows.mask.sum())


def measured(config: ModelConfig, remat: Any, rows: Rows, lengths: list[int], targets: int, rounds: int) -> dict[str, Any]:
    """Step and products in turns."""
    settings = TrainerConfig(rows_per_microbatch=ROWS, row_length=LENGTH, remat=remat)
    learner = Learner(Transformer(config, nnx.Rngs(0)), PolicyLoss(), settings, 1.0)
    learner.compile()

    def step() -> None:
        learner.accumulate(rows, 0)
        learner.update(float(targets), np.inf)

    block, block_flops = products([(ROWS * LENGTH, *matrix) for matrix in BLOCK_MATRICES])
    head, head_flops = products([(CHUNK_LOGITS // VOCABULARY, WIDTH, VOCABULARY)])
    wall, processor = in_turns({"step": step, "block": block, "head": head}, rounds)
    work = needed(config.num_layers, lengths, targets)
    rate = work["blocks"] + work["attention"], work["head"]
    bound_s, bound_processor = (
        rate[0] * statistics.median(of["block"]) / block_flops + rate[1] * statistics.median(of["head"]) / head_flops
        for of in (wall, processor)
    )
    step_s = statistics.median(wall["step"])
    parameters = sum(leaf.size for leaf in jax.tree.leaves(learner.parameters))
    held = 4 * 4 * parameters + learner.temporary_bytes
    floor = floor_bytes(config.num_layers, parameters, remat)
    return {
        "of_products": bound_s / step_s,
        "of_products_processor": bound_processor / statistics.median(processor["step"]),
        "step_s": step_s,
        "spread_s": [min(wall["step"]), max(wall["step"])],
        "processor_s": statistics.median(processor["step"]),
        "tokens_per_s": sum(lengths) / step_s,
        "products_gigaflops_per_s": sum(rate) / bound_s / 1e9,
        "needed_gigaflops": {name: flops / 1e9 for name, flops in work.items()},
        "held_gigabytes": held / 1e9,
        "temporary_gigabytes": learner.temporary_bytes / 1e9,
        "floor_gigabytes": floor / 1e9,
        "memory_of_floor": held / floor,
        "process_gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def needed(num_layers: int, lengths: list[int], targets: int) -> dict[str, float]:
    """Floating point operations that a forward and a backward pass cannot do without."""
    tokens = sum(lengths)
    pairs = sum(length * (length + 1) // 2 for length in lengths)
    return {
        "blocks": 6.0 * num_layers * tokens * sum(inner * outer for inner, outer in BLOCK_MATRICES),
        "attention": 12.0 * num_layers * pairs * HEADS * HEAD,
        "head": 6.0 * targets * WIDTH * VOCABULARY,
    }


def floor_bytes(num_layers: int, parameters: int, remat: str) -> int:
    """Parameters, sums, gradient and moments, and the activations that are kept."""
    kept = 2 * WIDTH + (2 * HEADS + 2 * KEY_HEADS) * HEAD + 2 * HIDDEN
    activations = num_layers * kept if remat == "none" else num_layers * WIDTH + kept
    return 4 * (5 * parameters + ROWS * LENGTH * activations)


def products(sizes: list[tuple[int, int, int]]) -> tuple[Callable[[], Any], float]:
    """Work that multiplies forward, towards the input and towards the matrix, and its floating point operations."""
    arrays = [(jnp.ones((num, inner)), jnp.ones((inner, outer)), jnp.ones((num, outer))) for num, inner, outer in sizes]

    def multiply(arrays: Any) -> Any:
        return [(x @ matrix, towards @ matrix.T, x.T @ towards) for x, matrix, towards in arrays]

    program = jax.jit(multiply).lower(arrays).compile()
    flops = sum(6.0 * num * inner * outer for num, inner, outer in sizes)
    return lambda: jax.block_until_ready(program(arrays)), flops


def in_turns(works: dict[str, Callable[[], Any]], rounds: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds, and processor seconds, of each, one after the other; the first round is not counted."""
    wall: dict[str, list[float]] = {name: [] for name in works}
    processor: dict[str, list[float]] = {name: [] for name in works}
    for round_ in range(rounds + 1):
        for name, work in works.items():
            begun, used = time.perf_counter(), time.process_time()
            work()
            if round_:
                wall[name].append(time.perf_counter() - begun)
                processor[name].append(time.process_time() - used)
    return wall, processor


if __name__ == "__main__":
    main(*sys.argv[1:])
