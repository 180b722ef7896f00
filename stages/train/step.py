"""One optimizer step as pure functions: gradients of micro-batches summed, then one update.

The gradient of the *summed* loss is accumulated and divided once by the targets of the whole step, so how the step was cut into
micro-batches changes nothing but rounding. Nothing here waits, counts or logs; ``trainer.py`` drives it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from stages.batches.microbatch import Rows
from stages.losses.tokens import Loss, Sums, Tokens
from stages.models.logprobs import token_logprobs


class Accumulated(NamedTuple):
    """Sums over the micro-batches of a step so far."""

    gradient: Any
    """Pytree like the parameters."""
    loss: jax.Array
    """float32 []"""
    sums: Sums
    """float32 [] each, by name."""


class Outcome(NamedTuple):
    """What one update did."""

    grad_norm: jax.Array
    """float32 []: global norm of the mean gradient, before clipping."""
    applied: jax.Array
    """bool []: False where there was no target, or a number was not finite; parameters and state are then unchanged."""
    loss: jax.Array
    """float32 []: mean over the targets."""
    sums: Sums
    """As accumulated."""


Objective = Callable[[Any, Rows], tuple[jax.Array, Sums]]
Accumulate = Callable[[Any, Accumulated, Rows], Accumulated]
Update = Callable[[Any, Any, Accumulated, jax.Array], tuple[Any, Any, Accumulated, Outcome]]


def make_objective(graphdef: nnx.GraphDef, loss: Loss, temperature: float) -> Objective:
    """(parameters, rows) -> (summed loss, sums to report), for a model that maps packed rows to logits."""

    def objective(parameters: Any, rows: Rows) -> tuple[jax.Array, Sums]:
        model = nnx.merge(graphdef, parameters)
        logits_BTV = model(rows.ids, rows.positions, rows.segments)
        logprobs_BT, entropy_BT = token_logprobs(logits_BTV, rows.ids, rows.segments, temperature)
        return loss(Tokens(logprobs_BT, entropy_BT, rows.logprobs, rows.advantages, rows.mask))

    return objective


def make_accumulate(objective: Objective) -> Accumulate:
    """(parameters, accumulated, rows) -> accumulated. The accumulated argument may be donated."""
    gradient = jax.value_and_grad(objective, has_aux=True)

    def accumulate(parameters: Any, before: Accumulated, rows: Rows) -> Accumulated:
        (loss, sums), gradients = gradient(parameters, rows)
        return jax.tree.map(jnp.add, before, Accumulated(gradients, loss, sums))

    return accumulate


def make_update(optimizer: optax.GradientTransformation) -> Update:
    """(parameters, state, accumulated, divisor) -> (parameters, state, zeros to accumulate into, outcome).

    State and accumulated may be donated. The parameters may not: others are reading them.
    """

    def update(parameters: Any, state: Any, accumulated: Accumulated, divisor: jax.Array) -> tuple:
        safe = jnp.maximum(divisor, 1.0)
        gradients = jax.tree.map(lambda leaf: leaf / safe.astype(leaf.dtype), accumulated.gradient)
        norm = optax.tree.norm(gradients)
        applied = (divisor > 0.0) & jnp.isfinite(norm) & jnp.isfinite(accumulated.loss)
        steps, new_state = optimizer.update(gradients, state, parameters)
        proposed = (optax.apply_updates(parameters, steps), new_state)
        parameters, state = jax.tree.map(lambda new, old: jnp.where(applied, new, old), proposed, (parameters, state))
        outcome = Outcome(norm, applied, accumulated.loss / safe, accumulated.sums)
        return parameters, state, jax.tree.map(jnp.zeros_like, accumulated), outcome

    return update


def zeros(objective: Objective, parameters: Any, rows: Rows) -> Accumulated:
    """Nothing accumulated yet, in the types that ``objective`` gives for rows of this shape."""
    loss, sums = jax.eval_shape(objective, parameters, rows)
    shapes = Accumulated(parameters, loss, sums)
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
