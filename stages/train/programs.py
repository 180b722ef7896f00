"""The functions of a training step, jitted, for a model, a loss and a config. No arrays.

Cached: the same arguments give the same objects, under which JAX finds what it has compiled. So a run that is resumed in its
process, or trained again with another seed, compiles once.
"""

import functools
from typing import Any, NamedTuple

import jax
from flax import nnx

from stages.losses.tokens import Loss
from stages.train.config import TrainerConfig
from stages.train.optimizer import make_optimizer
from stages.train.step import Objective, make_accumulate, make_objective, make_update


class Programs(NamedTuple):
    """What a trainer runs. ``Any`` is a jitted function: see ``stages.train.step`` for arguments and results."""

    objective: Objective
    """Not jitted; the shapes of what it gives are needed to set up the accumulator."""
    init: Any
    """Optimizer state of parameters."""
    accumulate: Any
    """Donates its second argument, what was accumulated."""
    update: Any
    """Donates its second and third argument, optimizer state and what was accumulated."""


@functools.lru_cache(maxsize=4)
def programs(graphdef: nnx.GraphDef, loss: Loss, config: TrainerConfig, temperature: float) -> Programs:
    """Jitted functions; nothing is compiled yet. All arguments are hashable and compared by value."""
    optimizer = make_optimizer(config)
    objective = make_objective(graphdef, loss, temperature)
    return Programs(
        objective=objective,
        init=jax.jit(optimizer.init),
        accumulate=jax.jit(make_accumulate(objective), donate_argnums=1),
        update=jax.jit(make_update(optimizer), donate_argnums=(1, 2)),
    )
