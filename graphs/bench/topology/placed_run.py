"""Trains on given devices and notes what each step was made of, what it came to, and what lay where in the middle of it."""

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from flax import nnx

from flow import Run
from graphs.bench.topology.collectives import Collectives, collectives_of
from graphs.bench.topology.job import JobConfig, placed
from graphs.bench.topology.memory import Device, Place, Program, devices_of, places_of, program_of
from graphs.bench.topology.moved import Moved, moved
from graphs.bench.witnessed import SeenStep, witnessed
from graphs.parts import Parts
from graphs.placing import PlacingConfig
from graphs.rl import rl
from stages.models.mesh import mesh_of
from stages.models.names import named_leaves
from stages.models.sharding import shardings
from stages.records import Batch
from stages.scoring.stage import TokenScores
from stages.train.gated import Gated

LOOKED_AT = 2
"""Step, from 1, at whose last group memory and shardings are looked at: all of it is made, so nobody but the trainer works."""
PER_TOKEN = ("ids", "mask", "advantages", "logprobs", "reference")
"""Of each segment that is trained."""


@dataclass(frozen=True)
class Sync:
    """What a weight sync moves.

    Attributes:
        weights_bytes: of the parameters, once.
        shared: whether the engine reads the trainer's own arrays.
        engine: from trainer to engine, each step.
        reference: from where the policy lies to the reference, once.
        by_xla: bytes each device receives where XLA makes of it a program on one mesh of the trainer's devices; ``None`` where
            there is no such mesh.
        on_one_mesh: the same counted from the shardings.
        equal: whether the engine then held what the trainer had published, to the bit.
    """

    weights_bytes: int
    shared: bool
    engine: Moved
    reference: Moved
    by_xla: Collectives | None
    on_one_mesh: Moved | None
    equal: bool


@dataclass
class Placed:
    """A training on its devices.

    Attributes:
        placing: the devices.
        losses: of each step.
        digests: of all bits of the parameters after it.
        segments: what each step trained, by the name of the segment.
        rewards: of the episodes of each step.
        parameters: after the last step, on the host.
        sync: what the second sync moved.
        devices: memory of each at that moment.
        programs: by role and name.
        collectives: of these.
        loaded_bytes: of parameters that the engine says it has put in force.
    """

    placing: PlacingConfig
    losses: list[float] = field(default_factory=list[float])
    digests: list[str] = field(default_factory=list[str])
    segments: list[dict[str, dict[str, np.ndarray]]] = field(default_factory=list[Any])
    rewards: list[list[float]] = field(default_factory=list[list[float]])
    parameters: Mapping[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    sync: Sync | None = None
    devices: Sequence[Device] = ()
    programs: Sequence[Program] = ()
    collectives: Mapping[tuple[str, str], Collectives] = field(default_factory=dict[Any, Any])
    loaded_bytes: int = 0


async def train(config: JobConfig, parts: Parts, values: Any, placing: PlacingConfig) -> Placed:
    """Train on these devices, strictly on-policy.

    Args:
        config: of the training.
        parts: see ``job.taught``.
        values: of the parameters that it begins with.
        placing: the devices.
    """
    gc.collect()
    before, found = places_of(jax.live_arrays()), Placed(placing)
    here = placed(config.engine, parts, values, placing)
    graph = rl(config.training(), here)
    nodes = graph.spec().nodes
    gated, reference = nodes["trainer"].stage, nodes["reference"].stage
    assert isinstance(gated, Gated)
    assert isinstance(reference, TokenScores)
    given: list[Batch] = []

    def see(step: SeenStep) -> None:
        found.losses.append(float(step.row["loss"]))
        found.digests.append(step.digest)
        found.segments.append(segments_of(step.batches))
        found.rewards.append([float(row.reward or 0.0) for batch in step.batches for row in batch.episodes])
        found.parameters = {name: np.asarray(leaf) for name, leaf in named_leaves(step.weights.parameters).items()}

    def look(batch: Batch) -> None:
        given.append(batch)
        if len(given) == LOOKED_AT * config.groups_per_step:
            _look(found, here, gated, reference, before)

    async with here.engine:
        await Run(witnessed(graph, see, look).build(quiet=True)).finish()
        found.loaded_bytes = here.engine.statistics().loaded_bytes
    return found


def segments_of(batches: Sequence[Batch]) -> dict[str, dict[str, np.ndarray]]:
    """What a step trained: arrays of each segment by its name, those of what is no target set to 0."""
    found: dict[str, dict[str, np.ndarray]] = {}
    for segment in (segment for batch in batches for segment in batch.segments):
        arrays = {name: getattr(segment, name) for name in PER_TOKEN}
        known = {name: array for name, array in arrays.items() if array is not None}
        found[segment.name] = {
            name: array if name in ("ids", "mask") else np.where(segment.mask, array, 0.0) for name, array in known.items()
        }
    return found


def _look(found: Placed, parts: Parts, gated: Gated, reference: TokenScores, before: Mapping[Place, int]) -> None:
    """Note what lies where. On the trainer's thread, while neither engine nor reference has anything to do."""
    engine, model = parts.engine, nnx.state(parts.model, nnx.Param)
    meshes = {
        "trainer": mesh_of(model),
        "engine": engine.mesh or mesh_of(model),
        "reference": parts.reference_mesh or mesh_of(model),
    }
    roles = {
        "trainer": gated.learner.arrays,
        "engine": engine.arrays,
        "reference": reference.arrays,
        "model": {"weights, as training began": model},
    }
    made = {"trainer": gated.learner.programs, "engine": engine.programs, "reference": reference.programs}
    found.programs = [
        program_of(role, name, program, meshes[role].devices.flat)
        for role, programs in made.items()
        for name, program in programs.items()
    ]
    found.collectives = {
        (role, name): collectives_of(program) for role, programs in made.items() for name, program in programs.items()
    }
    devices = sorted({device for mesh in meshes.values() for device in mesh.devices.flat}, key=lambda device: device.id)
    found.devices = devices_of(roles, found.programs, devices, before)
    found.sync = _sync(parts, gated, reference, meshes)


def _sync(parts: Parts, gated: Gated, reference: TokenScores, meshes: Mapping[str, Any]) -> Sync:
    published, in_force = jax.tree.leaves(gated.weights.parameters), jax.tree.leaves(parts.engine.parameters)
    scoring, began = jax.tree.leaves(reference.arrays["weights"]), jax.tree.leaves(nnx.state(parts.model, nnx.Param))
    by_xla, counted = _on_one_mesh(parts, meshes)
    return Sync(
        weights_bytes=sum(leaf.nbytes for leaf in in_force),
        shared=places_of(published).keys() == places_of(in_force).keys(),
        engine=moved(published, in_force),
        reference=moved(began, scoring),
        by_xla=by_xla,
        on_one_mesh=counted,
        equal=all(np.array_equal(np.asarray(one), np.asarray(other)) for one, other in zip(published, in_force, strict=True)),
    )


def _on_one_mesh(parts: Parts, meshes: Mapping[str, Any]) -> tuple[Collectives | None, Moved | None]:
    """The engine's layout on the trainer's own devices: what XLA makes of getting there, and what is counted.

    An engine with fewer devices than the trainer has its layout there as often as it fits.
    """
    mine, theirs = meshes["trainer"], meshes["engine"]
    shape = {**theirs.shape, "data": theirs.shape["data"] * (mine.size // theirs.size)}
    if mine.size % theirs.size or theirs.shape["data"] > 1:
        return None, None
    mesh = jax.make_mesh(tuple(shape.values()), tuple(shape), axis_types=mine.axis_types, devices=mine.devices.flatten())
    source, places = nnx.state(parts.model, nnx.Param), shardings(parts.model, mesh)
    target = jax.tree.map(lambda leaf, at: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=at), source, places)
    program = jax.jit(lambda tree: tree, out_shardings=places).lower(source).compile()
    return collectives_of(program), moved(jax.tree.leaves(source), jax.tree.leaves(target))
