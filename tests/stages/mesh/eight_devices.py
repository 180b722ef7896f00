"""What holds on a mesh of eight virtual devices, measured in a process of its own: prints one JSON object. Run by test_mesh.py.

Each entry is a largest difference from what one device gives, or a fact.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import nnx

from flow import testing
from stages.batches.pack import make_batch
from stages.losses.policy import PolicyLoss
from stages.models.cache import empty_cache
from stages.models.config import ExpertsConfig, ModelConfig
from stages.models.logprobs import target_logprobs
from stages.models.lora import LoraConfig, add_lora
from stages.models.mesh import MeshConfig, make_mesh, replicated, row_sharding
from stages.models.names import named_leaves
from stages.models.sharding import cache_sharding, shard, shardings, undivided
from stages.models.transformer import Transformer
from stages.policy import SampleRequest
from stages.records import Segment, Weights
from stages.rollout.config import EngineConfig
from stages.rollout.engine import Engine
from stages.rollout.verify import verify_sync
from stages.train.config import TrainerConfig
from stages.train.trainer import Trainer

ROWS, LENGTH, VOCABULARY = 8, 12, 32
DENSE = ModelConfig(
    vocab_size=VOCABULARY, width=16, num_layers=1, num_heads=8, num_kv_heads=8, head_size=4, mlp_width=32, context_length=LENGTH
)
MIXTURE = DENSE.model_copy(
    update={
        "num_kv_heads": 2,
        "head_norms": True,
        "tie_embeddings": False,
        "experts": ExpertsConfig(num_experts=4, per_token=2, width=16),
    }
)
RANDOM = np.random.default_rng(0)
IDS = RANDOM.integers(0, VOCABULARY, (ROWS, LENGTH)).astype(np.int32)
SEGMENTS = np.where(np.arange(LENGTH) < 7, 1, 2)[None].repeat(ROWS, 0).astype(np.int32)
POSITIONS = np.where(np.arange(LENGTH) < 7, np.arange(LENGTH), np.arange(LENGTH) - 7)[None].repeat(ROWS, 0).astype(np.int32)
CACHED = (("dense", (1, 1, 8)), ("mixture", (2, 2, 2)))
"""What is run over a cache too; the engines below do so on other meshes."""
ENGINE = EngineConfig(slots=2, context_length=LENGTH, prefill_rows=2, prefill_chunk=4)


def packed(graphdef: Any) -> Callable[..., Any]:
    def loss(parameters: Any, ids: Any, positions: Any, segments: Any) -> Any:
        model = nnx.merge(graphdef, parameters)
        hidden = model.hidden(ids, positions, segments)
        return target_logprobs(hidden, model.head, ids, positions > 0)[0].mean(), model.logits(hidden)

    return jax.value_and_grad(loss, has_aux=True)


def cached(graphdef: Any) -> Callable[..., Any]:
    def extend(parameters: Any, cache: Any, ids: Any) -> Any:
        model = nnx.merge(graphdef, parameters)
        starts, lengths = np.zeros(ROWS, np.int32), np.full(ROWS, 8, np.int32)
        hidden, cache = model.extend(cache, ids[:, :8], starts, lengths)
        last, cache = model.extend(cache, ids[:, 8:], starts + 8, lengths - 4)
        return model.logits(hidden), model.logits(last), cache

    return extend


def apart(one: Any, other: Any) -> float:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in pairs)


def held(leaf: jax.Array) -> int:
    """Numbers of a leaf that one device holds."""
    return int(np.prod(leaf.sharding.shard_shape(leaf.shape)))


def on(config: ModelConfig, shape: tuple[int, int, int], devices: Any = None) -> tuple[Transformer, Any]:
    model, mesh = Transformer(config, nnx.Rngs(0)), make_mesh(mesh_config(shape), devices)
    shard(model, mesh)
    return model, mesh


def mesh_config(shape: tuple[int, int, int]) -> MeshConfig:
    return MeshConfig(data=shape[0], fsdp=shape[1], tensor=shape[2])


def models() -> dict[str, Any]:
    """Forward, loss and gradient over packed rows, and logits over a cache."""
    found = {}
    for name, config, shapes in (
        ("dense", DENSE, ((1, 1, 8), (2, 2, 2), (1, 8, 1), (8, 1, 1))),
        ("mixture", MIXTURE, ((1, 1, 8), (2, 2, 2))),
    ):
        graphdef, parameters = nnx.split(Transformer(config, nnx.Rngs(0)), nnx.Param)
        rows, cache = (IDS, POSITIONS, SEGMENTS), empty_cache(config, ROWS, LENGTH)
        (loss, logits), gradient = jax.jit(packed(graphdef))(parameters, *rows)
        steps = jax.jit(cached(graphdef))(parameters, cache, IDS)
        for shape in shapes:
            model, mesh = on(config, shape)
            places, spread = shardings(model, mesh), nnx.state(model, nnx.Param)
            with jax.set_mesh(mesh):
                jitted = jax.jit(packed(graphdef), out_shardings=((None, None), places))
                (its_loss, its_logits), its_gradient = jitted(spread, *jax.device_put(rows, row_sharding(mesh)))
            found[f"{name} {shape}"] = {
                "loss": abs(float(loss) - float(its_loss)),
                "logits": apart(logits, its_logits),
                "gradient": apart(gradient, its_gradient),
                "gradient_size": max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(gradient)),
                "rows": its_logits.sharding.shard_shape(its_logits.shape)[0],
                "share": sum(map(held, jax.tree.leaves(spread))) / sum(leaf.size for leaf in jax.tree.leaves(spread)),
            }
            if (name, shape) in CACHED:
                lies = cache_sharding(config, mesh)
                arguments = spread, jax.device_put(cache, lies), jax.device_put(IDS, replicated(mesh))
                its_steps = jax.jit(cached(graphdef), out_shardings=(None, None, lies))(*arguments)
                found[f"{name} {shape}"]["cached"] = apart(steps, its_steps)
    return found


def batch() -> Any:
    mask = np.arange(LENGTH) >= 4
    segments = [
        Segment(
            ids,
            mask,
            np.full(len(ids), 1.0 if row % 2 else -1.0, np.float32),
            np.where(mask, -3.0, np.nan).astype(np.float32),
        )
        for row, ids in enumerate(IDS)
    ]
    return make_batch(0, [(segment,) for segment in segments])


def step(model: Transformer) -> tuple[dict[str, Any], Trainer]:
    rows: list[Any] = []
    context = testing.context(node="trainer", report=rows.append)
    # An epsilon that does not let Adam blow rounding of tiny gradients up to whole steps.
    config = TrainerConfig(row_length=LENGTH, rows_per_microbatch=4, learning_rate=0.01, epsilon=1e-3)
    trainer = Trainer(model, PolicyLoss(), config)
    trainer.open()
    trainer.add(batch(), context)
    trainer.finish(context)
    return rows[0], trainer


def request(number: int) -> SampleRequest:
    return SampleRequest(IDS[number, :5], 6, (), 0.0, (0, 0, number, 0, 0), f"{number}")


async def sampled(engine: Engine) -> list[Any]:
    return await asyncio.gather(*(engine.sample(request(number)) for number in range(3)))


async def opened(model: Transformer, use: Callable[[Engine], Any], **settings: Any) -> Any:
    async with Engine(model, ENGINE, **settings) as engine:
        return await use(engine)


def training() -> dict[str, Any]:
    """One step of a trainer, and engines that take what it publishes: on its mesh, and on other devices."""
    row, alone = step(Transformer(DENSE, nnx.Rngs(0)))
    model, _ = on(DENSE, (2, 2, 1), jax.devices()[:4])
    spread_row, trainer = step(model)
    moments = [leaf for leaf in jax.tree.leaves(trainer._learner.state) if leaf.ndim > 1]
    published = trainer.weights

    async def load(engine: Engine) -> Any:
        await engine.load(published, 1)
        held = jax.tree.leaves(engine.parameters)
        shared = [ours is theirs for ours, theirs in zip(held, jax.tree.leaves(published.parameters), strict=True)]
        samples = await sampled(engine)
        report = await verify_sync(engine, published.parameters)
        return samples, all(shared), {device.id for leaf in held for device in leaf.devices()}, report.differing

    async def load_alone(engine: Engine) -> Any:
        await engine.load(Weights(alone.weights.parameters), 1)
        return await sampled(engine)

    one = asyncio.run(opened(Transformer(DENSE, nnx.Rngs(0)), load_alone))
    same = asyncio.run(opened(model, load))
    other = asyncio.run(opened(model, load, mesh=make_mesh(mesh_config((1, 1, 4)), jax.devices()[4:])))
    return {
        "loss": abs(row["loss"] - spread_row["loss"]),
        "grad_norm": abs(row["grad_norm"] - spread_row["grad_norm"]),
        "parameters": apart(alone.weights.parameters, published.parameters),
        "moment_share": max(
            leaf.sharding.shard_shape(leaf.shape)[-1] / leaf.shape[-1] for leaf in moments if leaf.shape[-1] == 16
        ),
        **{
            name: {
                "tokens": all(a.ids.tolist() == b.ids.tolist() for a, b in zip(samples, one, strict=True)),
                "logprobs": max(float(np.abs(a.logprobs - b.logprobs).max()) for a, b in zip(samples, one, strict=True)),
                "shared": shared,
                "devices": sorted(devices),
                "differing": differing,
            }
            for name, (samples, shared, devices, differing) in (("same_mesh", same), ("other_mesh", other))
        },
    }


def facts() -> dict[str, Any]:
    """What needs no computation."""
    model, mesh = on(MIXTURE, (1, 1, 8))
    add_lora(model, LoraConfig(rank=2))
    described = nnx.eval_shape(lambda: Transformer(DENSE, nnx.Rngs(0)))
    shard(described, make_mesh(mesh_config((2, 2, 2))))
    refusals = []
    for work in (
        lambda: make_mesh(mesh_config((2, 2, 3))),
        lambda: Trainer(described, PolicyLoss(), TrainerConfig(row_length=LENGTH, rows_per_microbatch=6)),
    ):
        try:
            work()
        except ValueError as error:
            refusals.append(str(error))
    places = named_leaves(shardings(model, mesh))
    shown = ("key.kernel_IO", "query.kernel_IO", "query.lora_up_RO", "mlp.gate_EWF")
    return {
        "refusals": refusals,
        "undivided": undivided(model, mesh),
        "places": {name: str(places[f"blocks.0.{name}"].spec) for name in shown},
        "described": str(described.blocks[0].query.kernel_IO.get_raw_value().sharding.spec),
    }


if __name__ == "__main__":
    results = {}
    for work in (facts, models, training):
        begun = time.monotonic()
        results[work.__name__] = work()
        print(f"{work.__name__}: {time.monotonic() - begun:.1f} s", file=sys.stderr)
    print(json.dumps(results))
