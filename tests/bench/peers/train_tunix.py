"""One update by tunix's trainer on JAX, timed. Arguments: folder of the model, sequences, median tokens, micro-batch.

Its own code makes loss, gradients and update (``grpo_loss_fn`` and the jitted step of ``rl.trainer.Trainer``); generation is
left out: what it would have prepared comes from the workload. All micro-batches have one shape, so that it compiles once. Its
packing is no choice here: it hands segments to the model and leaves the mask out, and its Llama reads none. Runs in tunix's
environment.
"""

import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
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
    VOCABULARY,
    WEIGHT_DECAY,
    WIDTH,
    draw,
    padded,
)  # fmt: skip
from tunix.models.llama3.model import ModelConfig
from tunix.models.llama3.params import create_model_from_safe_tensors
from tunix.rl.algo_core import grpo_loss_fn
from tunix.rl.common import TrainExample
from tunix.rl.grpo.grpo_learner import GRPOConfig
from tunix.rl.trainer import Trainer
from tunix.sft.peft_trainer import TrainingConfig


def main(folder: str, num_sequences: str, median: str, micro_batch: str) -> None:
    """Answers updates until its input ends."""
    sequences = draw(int(num_sequences), int(median))
    blocks = examples(sequences, int(micro_batch))
    trainer = make_trainer(folder, len(blocks))
    step, _ = trainer.jit_train_and_eval_step()
    targets = [float(block.completion_mask.sum()) for block in blocks]

    def run() -> Measured:
        begun, used = time.perf_counter(), time.process_time()
        losses = []
        for block in blocks:
            loss, _, _ = step(block)
            losses.append(float(loss))
        jax.block_until_ready(trainer.optimizer)
        seconds, processor_s = time.perf_counter() - begun, time.process_time() - used
        capacity = sum(block.prompt_ids.size + block.completion_ids.size for block in blocks)
        # Its update takes the mean of the micro-batches' means; weighed by tokens they are the mean of all tokens.
        loss = float(np.average(losses, weights=targets))
        return Measured(seconds, [], processor_s, {"loss": loss, "mean_of_means": float(np.mean(losses)), "capacity": capacity})

    run()
    answer(run)


def examples(sequences: list, micro_batch: int) -> list[TrainExample]:
    """Micro-batches filled up to the longest prompt and completion of all."""
    rows = padded(sequences)
    floats = ("advantages", "old_per_token_logps")
    arrays = {name: np.array(value, np.float32 if name in floats else np.int32) for name, value in rows.items()}
    cut = [slice(at, at + micro_batch) for at in range(0, len(sequences), micro_batch)]
    return [
        TrainExample(**{name: jnp.asarray(array[part]) for name, array in arrays.items()}, ref_per_token_logps=None)
        for part in cut
    ]


def make_trainer(folder: str, accumulated: int) -> Trainer:
    """The trainer as the GRPO learner sets it up."""
    config = ModelConfig(
        num_layers=NUM_LAYERS, vocab_size=VOCABULARY, embed_dim=WIDTH, hidden_dim=HIDDEN, num_heads=HEADS, head_dim=HEAD,
        num_kv_heads=KEY_HEADS, rope_theta=10_000, norm_eps=1e-5, weight_tying=True,
    )  # fmt: skip
    mesh = jax.make_mesh((1, 1), ("fsdp", "tp"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    model = create_model_from_safe_tensors(folder, config, mesh, dtype=jnp.float32)
    adam = optax.adamw(LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    settings = TrainingConfig(eval_every_n_steps=1_000_000, gradient_accumulation_steps=accumulated)
    trainer = Trainer(model, optax.chain(optax.clip_by_global_norm(MAX_GRAD_NORM), adam), settings, dict)
    algorithm = GRPOConfig(num_generations=2, beta=0.0, epsilon=EPSILON, loss_agg_mode="token-mean")
    algorithm.temperature = 1.0  # as its learner sets it

    def loss(model: Any, train_example: TrainExample, algo_config: GRPOConfig) -> Any:
        return grpo_loss_fn(model, train_example, algo_config=algorithm, pad_id=0, eos_id=1)

    trainer.with_loss_fn(loss, has_aux=True)
    trainer.with_gen_model_input_fn(lambda example: {"train_example": example, "algo_config": algorithm})
    return trainer


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    main(*sys.argv[1:])
