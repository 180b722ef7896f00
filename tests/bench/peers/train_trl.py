"""One update by TRL's GRPO trainer on torch, timed. Arguments: folder of the model, sequences, median tokens, micro-batch.

Its own code makes the loss and the gradients (``GRPOTrainer.training_step``); generation is left out: what it would have
prepared comes from the workload. In its favour: each micro-batch is filled up to its own longest, where TRL fills a whole
generation up to the longest of all; no gradient checkpointing, which is its default. Loss ``dapo``: the mean over the tokens
of the update. Runs in the peers' environment.
"""

import sys
import tempfile
import time

import torch
from datasets import Dataset
from script import Measured, answer
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from train_workload import (
    EPSILON,
    LEARNING_RATE,
    MAX_GRAD_NORM,
    VOCABULARY,
    WEIGHT_DECAY,
    draw,
    in_micro_batches,
    num_targets,
    padded,
)
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer


def main(folder: str, num_sequences: str, median: str, micro_batch: str) -> None:
    """Answers updates until its input ends."""
    sequences = draw(int(num_sequences), int(median))
    blocks = [tensors(block, num_targets(sequences)) for block in in_micro_batches(sequences, int(micro_batch))]
    trainer = make_trainer(folder, int(micro_batch), len(blocks))
    model = trainer.model.train()
    optimizer = trainer.create_optimizer()
    trainer.current_gradient_accumulation_steps = len(blocks)
    trainer._prepare_inputs = lambda block: block

    def run() -> Measured:
        begun, used = time.perf_counter(), time.process_time()
        loss = sum(float(trainer.training_step(model, block, None)) for block in blocks)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
        optimizer.step()
        optimizer.zero_grad()
        seconds, processor_s = time.perf_counter() - begun, time.process_time() - used
        capacity = sum(block["prompt_ids"].numel() + block["completion_ids"].numel() for block in blocks)
        return Measured(seconds, [], processor_s, {"loss": loss, "grad_norm": float(norm), "capacity": capacity})

    run()
    answer(run)


def tensors(block: list, total: int) -> dict[str, torch.Tensor]:
    """A micro-batch as the trainer prepares it."""
    rows = padded(block)
    floats = {name: torch.tensor(rows[name], dtype=torch.float32) for name in ("old_per_token_logps", "advantages")}
    return {name: torch.tensor(value) for name, value in rows.items()} | floats | {"num_items_in_batch": torch.tensor(total)}


def make_trainer(folder: str, micro_batch: int, accumulated: int) -> GRPOTrainer:
    """The trainer with a tokenizer that nothing is read with, and a reward that is never asked."""
    words = Tokenizer(WordLevel({"<pad>": 0, "<eos>": 1, "<unk>": 2}, unk_token="<unk>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert model.config.vocab_size == VOCABULARY
    config = GRPOConfig(
        output_dir=tempfile.mkdtemp(), use_cpu=True, bf16=False, report_to="none", beta=0.0, loss_type="dapo", epsilon=EPSILON,
        learning_rate=LEARNING_RATE, lr_scheduler_type="constant", weight_decay=WEIGHT_DECAY, max_grad_norm=MAX_GRAD_NORM,
        per_device_train_batch_size=micro_batch, gradient_accumulation_steps=accumulated, num_generations=2,
        gradient_checkpointing=False, use_vllm=False,
    )  # fmt: skip
    return GRPOTrainer(
        model=model,
        reward_funcs=lambda **_: [0.0],
        args=config,
        train_dataset=Dataset.from_dict({"prompt": ["a"]}),
        processing_class=tokenizer,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
