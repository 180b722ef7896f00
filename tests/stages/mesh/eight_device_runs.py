"""Runs of a trainer over several steps on meshes of eight virtual devices, in a process of its own: prints one JSON object.

Run by test_runs.py. Each entry is a largest difference from the same run on one device, or a fact.
"""

import json
from typing import Any

import jax
import numpy as np
from flax import nnx

from flow import testing
from stages.batches.pack import make_batch
from stages.losses.policy import PolicyLoss
from stages.models.config import ModelConfig
from stages.models.mesh import MeshConfig, make_mesh
from stages.models.sharding import shard
from stages.models.transformer import Transformer
from stages.records import Batch, Segment
from stages.train.config import TrainerConfig
from stages.train.trainer import Trainer

LENGTH, VOCABULARY = 12, 32
MODEL = ModelConfig(
    vocab_size=VOCABULARY, width=16, num_layers=1, num_heads=8, num_kv_heads=8, head_size=4, mlp_width=32, context_length=LENGTH
)
# An epsilon that does not let Adam blow rounding of tiny gradients up to whole steps.
CONFIG = TrainerConfig(row_length=LENGTH, rows_per_microbatch=8, learning_rate=0.03, epsilon=1e-3)
WHOLE = CONFIG.model_copy(update={"num_epochs": 2, "num_minibatches": 2})
MODES: dict[str, tuple[TrainerConfig, PolicyLoss, bool]] = {
    "streamed": (CONFIG, PolicyLoss(), False),
    "whole": (WHOLE, PolicyLoss(against="proximal", correction="truncated"), True),
}
SHAPES = {"streamed": ((2, 2, 2),), "whole": ((1, 8, 1), (2, 2, 2))}
"""Meshes of each mode. The second does all that the first does, and more; each axis alone is for ``eight_devices.py``."""


def groups(step: int) -> list[Batch]:
    """Four groups of four: two micro-batches."""
    random = np.random.default_rng(step)
    mask = np.arange(LENGTH) >= 4
    return [make_batch(birth, [(segment(random, mask),) for _ in range(4)]) for birth in range(4)]


def segment(random: np.random.Generator, mask: np.ndarray) -> Segment:
    return Segment(
        ids=random.integers(0, VOCABULARY, LENGTH).astype(np.int32),
        mask=mask,
        advantages=np.full(LENGTH, random.normal(), np.float32),
        logprobs=np.where(mask, random.uniform(-4.0, -3.0, LENGTH), np.nan).astype(np.float32),
    )


def run(mode: str, shape: tuple[int, int, int] | None) -> tuple[list[dict[str, Any]], Trainer]:
    config, loss, whiten = MODES[mode]
    model = Transformer(MODEL, nnx.Rngs(0))
    if shape is not None:
        shard(model, make_mesh(MeshConfig(data=shape[0], fsdp=shape[1], tensor=shape[2])))
    if (mode, shape) == ("whole", (2, 2, 2)):
        config = config.model_copy(update={"optimizer_memory": "host"})
    rows: list[Any] = []
    context = testing.context(node="trainer", report=rows.append)
    trainer = Trainer(model, loss, config, whiten=whiten)
    trainer.open()
    for step in range(3):
        for group in groups(step):
            trainer.add(group, context)
        trainer.finish(context)
    return rows, trainer


def share(state: Any) -> float:
    """Of the numbers of an optimizer state that one device holds."""
    leaves = jax.tree.leaves(state)
    return sum(np.prod(leaf.sharding.shard_shape(leaf.shape)) for leaf in leaves) / sum(leaf.size for leaf in leaves)


def compared(mode: str) -> dict[str, Any]:
    alone, one = run(mode, None)
    found: dict[str, Any] = {"updates": [row["updates"] for row in alone], "losses": [row["loss"] for row in alone]}
    for shape in SHAPES[mode]:
        rows, trainer = run(mode, shape)
        pairs = list(zip(rows, alone, strict=True))
        leaves = zip(*(jax.tree.leaves(each.weights.parameters) for each in (trainer, one)), strict=True)
        state = trainer._learner.state
        found[f"{shape}"] = {
            **{name: max(abs(row[name] - other[name]) for row, other in pairs) for name in ("loss", "grad_norm", "entropy")},
            "parameters": max(float(np.abs(np.asarray(ours) - np.asarray(theirs)).max()) for ours, theirs in leaves),
            "updates": [row["updates"] for row in rows],
            "share": share(state),
            "memory": sorted({leaf.sharding.memory_kind for leaf in jax.tree.leaves(state)}),
        }
    return found


if __name__ == "__main__":
    print(json.dumps({mode: compared(mode) for mode in MODES}))
