"""What a program takes of each device's memory, from shapes alone: nothing is allocated, whatever the size of the model.

A lower bound on purpose, so that what is refused could not have run. The activations of a gradient are known to the compiler
only; they count where the gradient was compiled.
"""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding

from graphs.parts import Parts
from graphs.program import Program, Training
from stages.models.cache import empty_cache
from stages.models.critic import ActorCritic
from stages.models.lora import has_adapters, trained
from stages.models.mesh import mesh_of, row_sharding
from stages.models.sharding import cache_sharding, shardings
from stages.rollout.http.engine import HttpEngine
from stages.scoring.held import RESTS
from stages.train.programs import Layout, Programs, programs, rows_like

GIB = 2**30


@dataclass(frozen=True)
class Need:
    """One use of memory, at the same time as all others.

    Attributes:
        what: it is for.
        num_bytes: on one device.
    """

    what: str
    num_bytes: int


@dataclass(frozen=True)
class Budget:
    """What a device has.

    Attributes:
        device: its kind, for people.
        num_bytes: of its memory.
    """

    device: str
    num_bytes: int


def device_budget() -> Budget:
    """Memory of one of this process's devices. Virtual devices of a CPU share what the machine has."""
    device = jax.local_devices()[0]
    limit = (device.memory_stats() or {}).get("bytes_limit")
    if limit is None:
        limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // jax.local_device_count()
    return Budget(f"{device.device_kind} ({device.platform})", int(limit))


def memory_needs(program: Program, *, compiled: bool = False) -> Sequence[Need]:
    """What a program takes on each device at its fullest moment, as far as it is certain.

    Args:
        program: with its model described, or loaded.
        compiled: compile the gradient, to know its activations. Takes seconds for a small model, and a minute for a large one.
    """
    parts = program.parts
    if parts is None:
        return ()
    largest = _largest([phase.training for phase in program.phases if phase.training is not None])
    model = parts.model if largest is None or largest.scoring is None else largest.scoring.model
    graphdef, own, frozen = nnx.split(model, trained(model), nnx.Param)
    training = [] if largest is None else _training_needs(graphdef, own, frozen, largest, compiled=compiled)
    following, scoring = ([], []) if largest is None else _scoring_needs(parts, largest)
    here, meshes = [Need("weights", _size(own) + _size(frozen))], []
    for needs, mesh in ((_engine_needs(parts), parts.engine.mesh), (scoring, parts.reference_mesh)):
        if mesh is None:
            here += needs
        else:
            meshes.append(needs)
    # Other devices than the trainer's: the fullest ones count.
    return max([[*here, *training, *following], *meshes], key=lambda needs: sum(need.num_bytes for need in needs))


def _largest(trainings: Sequence[Training]) -> Training | None:
    """Phases come one after another, and all train the same policy: they differ in a critic and in the size of a gradient."""

    def size(one: Training) -> tuple[bool, int]:
        has_critic = one.scoring is not None and isinstance(one.scoring.model, ActorCritic)
        return has_critic, one.config.rows_per_microbatch * one.config.row_length

    return max(trainings, key=size, default=None)


def _training_needs(graphdef: nnx.GraphDef, own: Any, frozen: Any, largest: Training, *, compiled: bool) -> list[Need]:
    mesh = mesh_of((own, frozen))
    trained_at, frozen_at = Layout.of(own, mesh), Layout.of(frozen, mesh)
    made = programs(graphdef, trained_at, frozen_at, largest.loss, largest.config, largest.temperature)
    weights, state = _size(trained_at.masters), Need("optimizer state", _size(made.state))
    needs = [Need("gradient, summed", weights)]
    if made.publish is not None:
        needs.insert(0, Need("weights in float32", weights))
    activations = _activations(made, trained_at, frozen_at, mesh, largest) if compiled else 0
    cut = f"{largest.config.rows_per_microbatch} x {largest.config.row_length} tokens"
    # A step is a gradient or an update, never both. What is published is not overwritten: others are reading it.
    gradient, update = [Need(f"activations, {cut}", activations)], [Need("the next weights", _size(own))]
    if largest.config.optimizer_memory == "host":
        update.append(state)
    else:
        needs.insert(-1, state)
    return [*needs, *max(update, gradient, key=lambda needs: sum(need.num_bytes for need in needs))]


def _scoring_needs(parts: Parts, training: Training) -> tuple[list[Need], list[Need]]:
    """(what the trainer keeps of a reference that follows, what the stages keep where they score).

    Nothing for a critic, whose arrays are those that are published, nor for a reference that is the policy without adapters.
    What rests in host memory is not there for certain while a gradient is taken.
    """
    if training.scoring is None:
        return [], []
    follow, stages, policy = training.scoring.follow, training.scoring.stages, nnx.state(parts.model, trained(parts.model))
    following, found = [], []
    if follow is not None:
        masters = Layout.of(policy, mesh_of(policy)).masters if follow.decay else policy
        following = [Need("the reference that follows", _size(masters))]
    for name, shown in (("reference", "the reference"), ("teacher", "the teacher")):
        if name in stages:
            own, frozen = stages[name].resting
            if name == "reference" and parts.reference_mesh is None:
                # The trainer has those beneath adapters, and those that follow; the first ones it gives up.
                own = () if has_adapters(parts.model) or follow is not None else own
                frozen = ()
            found.append(Need(shown, _size((own, frozen))))
    return following, [need for need in found if need.num_bytes]


def _engine_needs(parts: Parts) -> list[Need]:
    """Keys and values, and a copy of the weights where the engine cannot share them. Nothing here of what servers have."""
    if isinstance(parts.engine, HttpEngine):
        return []
    engine, model = parts.engine.config, parts.model.config
    state = nnx.state(parts.model, nnx.Param)
    mesh, dtype = parts.engine.mesh or mesh_of(state), engine.dtype or model.dtype
    own = model.model_copy(update={"dtype": dtype})
    places = cache_sharding(own, mesh)
    cache = jax.eval_shape(lambda: empty_cache(own, engine.slots + engine.kept, engine.context_length))
    rows = f"{engine.slots + engine.kept} x {engine.context_length} tokens"
    needs = [Need(f"keys and values, {rows}", _size(jax.tree.map(lambda leaf: _at(leaf, leaf.dtype, places), cache)))]
    if parts.engine.mesh is not None or dtype != model.dtype:
        copy = jax.tree.map(lambda leaf, place: _at(leaf, dtype, place), state, shardings(parts.model, mesh))
        needs.insert(0, Need("the engine's weights", _size(copy)))
    return needs


def _at(leaf: Any, dtype: Any, place: NamedSharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, dtype, sharding=place)


def check_memory(program: Program, budget: Budget, *, compiled: bool = False) -> str:
    """Refuse a program that cannot fit.

    Args:
        program: with its model described, or loaded.
        budget: what there is.
        compiled: see ``memory_needs``.

    Returns:
        The table of what it takes; empty for a program that brings everything itself.

    Raises:
        ValueError: with the table.
    """
    needs = memory_needs(program, compiled=compiled)
    total = sum(need.num_bytes for need in needs)
    if total > budget.num_bytes:
        raise ValueError(
            f"expected a program that fits a device's memory of {_gib(budget.num_bytes)}, {budget.device}; got one that takes "
            f"{_gib(total)}, in {program.name}:\n{memory_table(needs, budget)}\n"
            "take a smaller model, fewer slots or a shorter context_length of the engine, or fewer rows_per_microbatch"
        )
    return memory_table(needs, budget) if needs else ""


def memory_table(needs: Sequence[Need], budget: Budget) -> str:
    """A line for each need, and the sum against the budget."""
    total = sum(need.num_bytes for need in needs)
    lines = [*((need.what, need.num_bytes) for need in needs), (f"at once, of {_gib(budget.num_bytes)}", total)]
    width = max(len(what) for what, _ in lines)
    return "\n".join(f"  {what:<{width}}  {_gib(num_bytes):>12}" for what, num_bytes in lines)


def _activations(made: Programs, own: Layout, frozen: Layout, mesh: Mesh, training: Training) -> int:
    """Bytes the compiled gradient of a micro-batch takes beside its arguments and results."""
    rows = rows_like(training.config.shapes[0], training.config, training.loss)
    spread = jax.tree.map(lambda array: _at(array, array.dtype, row_sharding(mesh)), rows)
    with jax.set_mesh(mesh):
        lowered = made.accumulate.lower(own.masters, made.accumulated, frozen.tree, spread, np.int32(0))
    analysis = lowered.compile().memory_analysis()
    return 0 if analysis is None else int(analysis.temp_size_in_bytes)


def _size(tree: Any) -> int:
    """Bytes of the arrays of a tree on each device that holds a part; those in host memory are none."""

    def one(leaf: Any) -> int:
        if leaf.sharding is not None and leaf.sharding.memory_kind == RESTS:
            return 0
        shape = leaf.shape if leaf.sharding is None else leaf.sharding.shard_shape(leaf.shape)
        return math.prod(shape) * leaf.dtype.itemsize

    return sum(one(leaf) for leaf in jax.tree.leaves(tree))


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / GIB:,.2f} GiB" if num_bytes >= 2**28 else f"{num_bytes / 2**20:,.1f} MiB"
