"""One small run with a reference that follows and a critic, on devices placed in several ways: prints one JSON object.

Run by test_placements_of_a_run.py, in a process of its own with eight virtual devices. Each entry has the losses of the steps
and digests of what was published last: policy, critic and reference.
"""

import asyncio
import dataclasses
import hashlib
import json
import sys
import time
from typing import Any

import jax
import numpy as np
from flax import nnx

from flow import Collect, Freshness, Graph, Run, Threads
from graphs.calculator import CalculatorConfig, calculator
from graphs.parts import Parts
from graphs.placing import PlacingConfig, place
from graphs.scoring import Scoring, scoring
from graphs.scoring_config import CriticConfig, ReferenceConfig
from stages.advantages.config import AdvantagesConfig
from stages.advantages.stage import Advantages
from stages.agents.guards import TimeLimits
from stages.agents.sampling import SamplingConfig
from stages.batches.stage import Pack, PackConfig
from stages.episodes import Episodes
from stages.losses.policy import PolicyLoss
from stages.models.config import ModelConfig
from stages.models.mesh import MeshConfig
from stages.models.names import named_leaves
from stages.models.transformer import Transformer
from stages.records import Episode, Weights
from stages.rewards.stage import Rewards
from stages.rollout.config import EngineConfig
from stages.rollout.engine import Engine
from stages.tasks.source import Tasks
from stages.train.config import TrainerConfig
from stages.train.following import FollowConfig
from stages.train.trainer import Trainer

STEPS, GROUPS, ROW, ONE = 3, 2, 64, MeshConfig()
TRAINER = TrainerConfig(row_length=ROW, rows_per_microbatch=2, learning_rate=0.02, epsilon=1e-3)
LOSS = PolicyLoss(kl_coefficient=1.0, value_coefficient=0.5)
ADVANTAGES = AdvantagesConfig(rule="gae", gae_lambda=0.9)
SAMPLING = SamplingConfig(max_tokens_per_turn=8, max_turns=2)
SETTINGS = CalculatorConfig(
    num_train_tasks=64,
    model=ModelConfig(
        vocab_size=CalculatorConfig().model.vocab_size, width=16, num_layers=1, num_heads=2, num_kv_heads=2, head_size=8,
        mlp_width=32, context_length=ROW,
    ),
    engine=EngineConfig(slots=4, context_length=ROW, prefill_rows=4, prefill_chunk=16),
)  # fmt: skip


def varied(episode: Episode) -> float:
    """A reward that tells the members of an untrained policy apart."""
    return float(episode.ids[episode.mask].sum() % 7)


def placed(config: PlacingConfig) -> Parts:
    """The parts of the calculator, the model loaded where it is to lie."""
    parts = calculator(SETTINGS).parts
    assert parts is not None
    places, model = place(parts.model, config), parts.model
    first = nnx.state(Transformer(SETTINGS.model, nnx.Rngs(0)), nnx.Param)
    nnx.update(model, jax.tree.map(lambda leaf, to: jax.device_put(leaf, to.sharding), first, nnx.state(model, nnx.Param)))
    engine = Engine(model, SETTINGS.engine, decode=parts.chat.decode, mesh=places.engine)
    return dataclasses.replace(parts, engine=engine, reference_mesh=places.reference)


def declared(parts: Parts, scores: Scoring, trainer: Trainer, delays: dict[str, float | None]) -> Graph:
    """The graph of ``rl.py`` with nodes that score, and loads that take their time, or never happen."""

    def late(load: Any, seconds: float | None) -> Any:
        async def slow(weights: Weights, version: int) -> None:
            if seconds is not None:
                await asyncio.sleep(seconds)
            if seconds is not None or version == 0:
                await load(weights, version)

        return slow

    graph = Graph("placed")
    for name, stage in scores.stages.items():
        stage.load = late(stage.load, delays.get(name, 0.0))
    weights = graph.latest("weights", Weights, load=scores.load(late(parts.engine.load, delays.get("engine", 0.0))))
    episode = Episodes(parts.engine, parts.chat, parts.agent, parts.make_env, SAMPLING, TimeLimits(), None)
    prompts = graph.source("prompts", Tasks(parts.train, 0))
    members = graph.repeat("members", prompts, n=4)
    episodes = graph.stage("episodes", episode, workers=8, reads=weights)
    groups = graph.group("groups", episodes)
    rewards = graph.stage("rewards", Rewards({"varied": (varied, 1.0)}))
    advantages = graph.stage("advantages", Advantages(ADVANTAGES))
    batches = graph.stage("batches", Pack(PackConfig(row_length=ROW), LOSS.needs))
    sink = graph.sink("trainer", trainer, collect=Collect(GROUPS, steps=STEPS), placement=Threads())
    prompts >> members >> episodes >> groups >> rewards
    scores.after(graph, rewards) >> advantages >> batches >> sink
    graph.feedback(sink, weights, initial=lambda: trainer.weights, freshness=Freshness(0))
    return graph


def run(config: PlacingConfig, delays: dict[str, float | None] | None = None) -> dict[str, Any]:
    parts = placed(config)
    reference = ReferenceConfig(follow=FollowConfig(decay=0.5), rows_per_batch=2)
    scores = scoring(
        parts, reference=reference, critic=CriticConfig(rows_per_batch=2), temperature=1.0, group_size=4, row_length=ROW
    )
    trainer = Trainer(scores.model, LOSS, TRAINER, follow=scores.follow)
    rows: list[dict[str, Any]] = []
    devices: set[int] = set()

    class Watcher:
        def committed(self, node: str, values: Any) -> None:
            if node == "reference":
                held = jax.tree.leaves(scores.stages[node]._held.on_devices())
                devices.update(device.id for leaf in held for device in leaf.devices())

        def reported(self, node: str, row: Any) -> None:
            rows.append(dict(row))

    async def main() -> None:
        async with parts.engine:
            await Run(declared(parts, scores, trainer, delays or {}).build(quiet=True), watchers=(Watcher(),)).finish()

    asyncio.run(main())
    last = trainer.weights
    return {
        "losses": [row["loss"] for row in rows],
        "tokens": [row["sampled_tokens"] for row in rows],
        "compilations": [stage.num_compilations for stage in scores.stages.values()],
        "digests": [digest(tree) for tree in (last.parameters, last.critic, last.reference)],
        "norm": float(np.sqrt(sum(np.square(np.asarray(leaf)).sum() for leaf in jax.tree.leaves(last.parameters)))),
        "devices": sorted(devices),
    }


def digest(tree: Any) -> str:
    return hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in named_leaves(tree).values())).hexdigest()


RUNS = {
    "colocated": (PlacingConfig(), {}),
    "slow_reference": (PlacingConfig(), {"reference": 0.1}),
    "stale_reference": (PlacingConfig(), {"reference": None}),
    "slow_engine": (PlacingConfig(), {"engine": 0.1}),
    "two_way": (PlacingConfig(engine_mesh=ONE), {}),
    "three_way": (PlacingConfig(engine_mesh=ONE, reference_mesh=ONE), {}),
    "spread": (PlacingConfig(engine_mesh=ONE, reference_mesh=MeshConfig(data=2)), {}),
}

if __name__ == "__main__":
    results = {}
    for name, arguments in RUNS.items():
        begun = time.monotonic()
        results[name] = run(*arguments)
        print(f"{name}: {time.monotonic() - begun:.1f} s", file=sys.stderr)
    print(json.dumps(results))
