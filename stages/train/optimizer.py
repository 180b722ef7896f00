"""The optimizer of a config: clip, AdamW, schedule. Optax only."""

from typing import Any

import jax
import optax

from stages.train.config import TrainerConfig


def make_optimizer(config: TrainerConfig) -> optax.GradientTransformation:
    """AdamW on a clipped gradient.

    Source: Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization". We differ: norms, biases and vectors are not
    decayed, as is usual for transformers.
    """
    adam = optax.adamw(
        learning_rate(config),
        b1=config.beta1,
        b2=config.beta2,
        eps=config.epsilon,
        weight_decay=config.weight_decay,
        mask=decayed,
    )
    return adam if config.max_grad_norm is None else optax.chain(optax.clip_by_global_norm(config.max_grad_norm), adam)


def learning_rate(config: TrainerConfig) -> optax.Schedule:
    """Learning rate of the update with a given number of updates before it."""
    peak, end = config.learning_rate, config.learning_rate * config.final_share
    if config.schedule == "constant":
        after = optax.constant_schedule(peak)
    elif config.schedule == "linear":
        after = optax.linear_schedule(peak, end, config.decay_steps)
    else:
        after = optax.cosine_decay_schedule(peak, config.decay_steps, alpha=config.final_share)
    if config.warmup_steps == 0:
        return after
    # From one part in warmup_steps + 1: at exactly 0 the first step would be work for nothing.
    rise = optax.linear_schedule(peak / (config.warmup_steps + 1), peak, config.warmup_steps)
    return optax.join_schedules([rise, after], [config.warmup_steps])


def num_updates(state: Any) -> int:
    """Updates a state has taken part in. Skipped ones are not among them, so the schedule waits for them."""
    return int(optax.tree_utils.tree_get_all_with_path(state, "count")[0][1])


def decayed(parameters: Any) -> Any:
    """True for each matrix. Norms may be stacked over layers, so they are known by name and not by rank."""

    def is_matrix(path: tuple[Any, ...], leaf: Any) -> bool:
        name = jax.tree_util.keystr(path)
        return leaf.ndim > 1 and "norm" not in name and "bias" not in name

    return jax.tree_util.tree_map_with_path(is_matrix, parameters)
