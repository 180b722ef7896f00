"""One update as pure functions: gradients of micro-batches summed, then one step of the optimizer.

The gradient of the *summed* loss is accumulated and divided once by the divisor of all of them, so how they were cut changes
nothing but rounding. Nothing here waits, counts or logs; ``learner.py`` drives it.

Parameters are those that are trained, in float32 whatever the model computes in: a step of Adam is smaller than what bfloat16
can tell apart. So are their gradients and moments. What is frozen goes in beside them, as the model has it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from stages.batches.rows import Rows
from stages.losses.tokens import Loss, Sums, Tokens, masked_sum
from stages.models.logprobs import Scorable, target_logprobs


class Gap(NamedTuple):
    """How far the engine's log-probabilities are from the trainer's, over targets that the parameters in force sampled."""

    num: jax.Array
    """float32 []: such targets."""
    sum: jax.Array
    """float32 []: of absolute differences."""
    max: jax.Array
    """float32 []"""


class Accumulated(NamedTuple):
    """Sums over the micro-batches of an update so far."""

    gradient: Any
    """Pytree like the parameters."""
    loss: jax.Array
    """float32 []"""
    sums: Sums
    """float32 [] each, by name."""
    gap: Gap


class Outcome(NamedTuple):
    """What one update did."""

    grad_norm: jax.Array
    """float32 []: global norm of the mean gradient, before clipping."""
    applied: jax.Array
    """bool []: False where there was no target, a number was not finite, or the norm above its bound; parameters and state are
    then unchanged."""
    loss: jax.Array
    """float32 []: summed, over the divisor."""
    sums: Sums
    """As accumulated."""
    gap: Gap
    """As accumulated."""


Objective = Callable[[Any, Any, Rows, jax.Array], tuple[jax.Array, tuple[Sums, Gap, jax.Array]]]
Accumulate = Callable[[Any, Accumulated, Any, Rows, jax.Array], tuple[Accumulated, jax.Array]]
Update = Callable[[Any, Any, Accumulated, jax.Array, jax.Array], tuple[Any, Any, Accumulated, Outcome]]
Read = Callable[[Any, Any, Rows], Tokens]


def masters(parameters: Any) -> Any:
    """Parameters in float32: themselves where all are so already, else a copy of each, so that all may be donated."""
    if all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(parameters)):
        return parameters
    return jax.tree.map(lambda leaf: jnp.copy(leaf) if leaf.dtype == jnp.float32 else leaf.astype(jnp.float32), parameters)


def cast_like(parameters: Any, dtypes: tuple[Any, ...]) -> Any:
    """Parameters in the types of the model's own."""
    leaves, structure = jax.tree.flatten(parameters)
    return jax.tree.unflatten(structure, [leaf.astype(dtype) for leaf, dtype in zip(leaves, dtypes, strict=True)])


def make_read(
    graphdef: nnx.GraphDef[Scorable], dtypes: tuple[Any, ...], loss: Loss, temperature: float, remat: bool = False
) -> Read:
    """(parameters, frozen, rows) -> what the loss reads, for a model as ``stages.models.logprobs.Scorable`` describes it.

    A loss that needs a critic gets ``model.values(ids, positions, segments)``, float32 [B, T]: the value of what came before
    each token.

    Args:
        graphdef: of a model split into what is trained and what is frozen.
        dtypes: the model's own types of what is trained.
        loss: see ``Loss``.
        temperature: of the distribution that tokens were sampled from.
        remat: see ``Transformer.hidden``.
    """

    def read(parameters: Any, frozen: Any, rows: Rows) -> Tokens:
        model = nnx.merge(graphdef, cast_like(parameters, dtypes), frozen)
        packed = rows.ids, rows.positions, rows.segments
        logprobs_BT, entropy_BT = target_logprobs(model.hidden(*packed, remat), model.head, rows.ids, rows.mask, temperature)
        return Tokens(
            logprobs=logprobs_BT,
            entropy=entropy_BT,
            mask=rows.mask,
            segments=rows.segments,
            weights=rows.weights,
            advantages=rows.advantages,
            behaviour=rows.logprobs,
            proximal=rows.proximal,
            reference=rows.reference,
            values=model.values(*packed, remat) if loss.needs.critic else None,
            old_values=rows.values,
            returns=rows.returns,
        )

    return read


def make_objective(read: Read, loss: Loss) -> Objective:
    """(parameters, frozen, rows, version) -> (summed loss, (what to report, float32 [B, T]: log-probabilities of targets))."""

    def objective(
        parameters: Any, frozen: Any, rows: Rows, version: jax.Array
    ) -> tuple[jax.Array, tuple[Sums, Gap, jax.Array]]:
        tokens = read(parameters, frozen, rows)
        summed, sums = loss(tokens)
        return summed, (sums, *jax.lax.stop_gradient((_gap(tokens, rows.versions == version), tokens.logprobs)))

    return objective


def make_pulls(read: Read, loss: Loss) -> Callable[[Any, Any, Rows], tuple[Tokens, jax.Array]]:
    """(parameters, frozen, rows) -> (what the loss reads, float32 [B, T]: derivative of its sum by each log-probability)."""

    def pulls(parameters: Any, frozen: Any, rows: Rows) -> tuple[Tokens, jax.Array]:
        tokens = read(parameters, frozen, rows)
        return tokens, jax.grad(lambda logprobs_BT: loss(tokens._replace(logprobs=logprobs_BT))[0])(tokens.logprobs)

    return pulls


def make_accumulate(objective: Objective) -> Accumulate:
    """(parameters, accumulated, frozen, rows, version) -> (accumulated, log-probabilities). The second may be donated."""
    gradient = jax.value_and_grad(objective, has_aux=True)

    def accumulate(
        parameters: Any, before: Accumulated, frozen: Any, rows: Rows, version: jax.Array
    ) -> tuple[Accumulated, jax.Array]:
        (loss, (sums, gap, logprobs_BT)), gradients = gradient(parameters, frozen, rows, version)
        added = jax.tree.map(jnp.add, before, Accumulated(gradients, loss, sums, gap))
        return added._replace(gap=added.gap._replace(max=jnp.maximum(before.gap.max, gap.max))), logprobs_BT

    return accumulate


def make_update(optimizer: optax.GradientTransformation) -> Update:
    """(parameters, state, accumulated, divisor, bound) -> (parameters, state, zeros to accumulate into, outcome).

    State and accumulated may be donated; the parameters only where nobody else reads them.
    """

    def update(parameters: Any, state: Any, accumulated: Accumulated, divisor: jax.Array, bound: jax.Array) -> tuple:
        safe = jnp.maximum(divisor, 1.0)
        gradients = jax.tree.map(lambda leaf: leaf / safe.astype(leaf.dtype), accumulated.gradient)
        norm = optax.tree.norm(gradients)
        applied = (divisor > 0.0) & jnp.isfinite(norm) & jnp.isfinite(accumulated.loss) & (norm <= bound)
        steps, new_state = optimizer.update(gradients, state, parameters)
        proposed = (optax.apply_updates(parameters, steps), new_state)
        parameters, state = jax.tree.map(lambda new, old: jnp.where(applied, new, old), proposed, (parameters, state))
        outcome = Outcome(norm, applied, accumulated.loss / safe, accumulated.sums, accumulated.gap)
        return parameters, state, jax.tree.map(jnp.zeros_like, accumulated), outcome

    return update


def _gap(tokens: Tokens, fresh_BT: jax.Array) -> Gap:
    fresh_BT &= tokens.mask
    apart_BT = jnp.where(fresh_BT, jnp.abs(tokens.logprobs - tokens.behaviour), 0.0)
    return Gap(masked_sum(jnp.ones_like(apart_BT), fresh_BT), jnp.sum(apart_BT), jnp.max(apart_BT))
