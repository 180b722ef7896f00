"""One update of the trainer, timed in a process of its own. Arguments: folder of the model, sequences, median tokens.

With ``write`` in place of sequences it only writes the model that all systems read into the folder.
"""

import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx
from script import Measured, answer
from train_workload import (
    EPSILON,
    HEAD,
    HEADS,
    HIDDEN,
    KEY_HEADS,
    LEARNING_RATE,
    MAX_GRAD_NORM,
    NUM_LAYERS,
    ROTARY_BASE,
    VOCABULARY,
    WEIGHT_DECAY,
    WIDTH,
    draw,
    num_targets,
    num_tokens,
)  # fmt: skip

sys.path.insert(0, str(Path(__file__).parents[3]))
from flow import testing
from stages.batches.pack import make_batch
from stages.losses.policy import PolicyLoss
from stages.models.config import ModelConfig, RotaryConfig
from stages.models.huggingface import load_huggingface, write_huggingface
from stages.models.transformer import Transformer
from stages.records import Segment
from stages.train.config import TrainerConfig
from stages.train.trainer import Trainer

MICRO_BATCH_TOKENS = 2048


def main(folder: str, num_sequences: str, median: str = "") -> None:
    """Answers updates until its input ends."""
    if num_sequences == "write":
        write(Path(folder))
        return
    sequences = draw(int(num_sequences), int(median))
    longest = max(len(sequence.prompt) + len(sequence.completion) for sequence in sequences)
    length = -(-longest // 64) * 64
    config = TrainerConfig(
        row_length=length, rows_per_microbatch=max(MICRO_BATCH_TOKENS // length, 1), split_last=4, learning_rate=LEARNING_RATE,
        max_grad_norm=MAX_GRAD_NORM, weight_decay=WEIGHT_DECAY, beta2=0.999,
    )  # fmt: skip
    rows: list[Any] = []
    context = testing.context(node="trainer", report=rows.append)
    model = load_huggingface(Path(folder))
    trainer = Trainer(model, PolicyLoss(clip_low=EPSILON), config)
    trainer.open()
    batches = [
        make_batch(birth, [(segment(sequence),) for sequence in sequences[birth * 8 : birth * 8 + 8]])
        for birth in range(len(sequences) // 8)
    ]

    def run() -> Measured:
        begun, used = time.perf_counter(), time.process_time()
        for batch in batches:
            trainer.add(batch, context)
        trainer.finish(context)
        seconds, processor_s = time.perf_counter() - begun, time.process_time() - used
        row = rows[-1]
        assert row["trained_tokens"] == num_targets(sequences)
        return Measured(
            seconds,
            [],
            processor_s,
            {"loss": row["loss"], "grad_norm": row["grad_norm"], "capacity": num_tokens(sequences) / row["fill"]},
        )

    run()
    answer(run)


def segment(sequence: Any) -> Segment:
    """A sequence as the trainer takes it."""
    ids = np.array(sequence.prompt + sequence.completion, np.int32)
    mask = np.arange(len(ids)) >= len(sequence.prompt)
    logprobs = np.array([0.0] * len(sequence.prompt) + sequence.logprobs, np.float32)
    return Segment(ids, mask, np.full(len(ids), sequence.advantage, np.float32), logprobs)


def write(folder: Path) -> None:
    """The model."""
    config = ModelConfig(
        vocab_size=VOCABULARY, width=WIDTH, num_layers=NUM_LAYERS, num_heads=HEADS, num_kv_heads=KEY_HEADS, head_size=HEAD,
        mlp_width=HIDDEN, context_length=8192, rotary=RotaryConfig(base=ROTARY_BASE),
    )  # fmt: skip
    write_huggingface(Transformer(config, nnx.Rngs(0)), folder)


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    main(*sys.argv[1:])
