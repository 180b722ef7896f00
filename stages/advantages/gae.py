"""Generalized advantage estimation with a critic, by one associative scan over all tokens of a group. Pure JAX.

Axes: N sampled tokens of all trajectories, one trajectory after another, each in order.
"""

import jax
import jax.numpy as jnp
import numpy as np

from stages.advantages.members import single

MIN_TOKENS = 256
"""Shortest compiled length; longer ones are powers of two, so that a run compiles a handful."""


def gae(
    rewards: np.ndarray,
    values: np.ndarray,
    ends: np.ndarray,
    bootstraps: np.ndarray,
    discount: float,
    gae_lambda: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Advantages, and what the critic should have said.

    Args:
        rewards: float [N]: reward at each sampled token. Tokens that were not sampled are left out by who calls, so a tool's
            reply of any length is one step in time.
        values: float [N]: the critic's value of what came before the token.
        ends: bool [N]: the last token of its trajectory. Nothing passes from one trajectory to another.
        bootstraps: float [N]: value of what follows an end; read at ends only. 0 where the trajectory is over by the rules of
            its task. Where it was cut, the critic's last value, which is the nearest it has said.
        discount: how much less a reward is worth one sampled token later, from 0 to 1.
        gae_lambda: 0 trusts the critic alone, 1 the rewards alone.

    Returns:
        (advantages, returns), float32 [N]; returns are advantages + values.

    Raises:
        ValueError: float32 does not hold one.

    Source: Schulman et al. 2016, "High-Dimensional Continuous Control Using Generalized Advantage Estimation", equation 16:
        A_t = delta_t + discount * lambda * A_{t+1}, with delta_t = r_t + discount * V_{t+1} - V_t.
        We differ: a cut trajectory is bootstrapped from the value of its last token's context, since nobody asked the critic
        about what came after it.
    """
    values = np.asarray(values, np.float32)
    ends = np.asarray(ends, bool)
    following = np.where(ends, bootstraps, np.append(values, np.float32(0.0))[1:])
    deltas = np.asarray(rewards, np.float64) + discount * following - values
    decays = np.where(ends, 0.0, discount * gae_lambda)
    length = max(MIN_TOKENS, 1 << max(0, len(values) - 1).bit_length())
    padding = (0, length - len(values))
    deltas = single(deltas, "gae", "token")
    scanned = _discounted_sums(np.pad(deltas, padding), np.pad(decays.astype(np.float32), padding))
    advantages = single(np.asarray(scanned)[: len(values)], "gae", "token")
    return advantages, single(advantages.astype(np.float64) + values, "gae", "token")


@jax.jit
def _discounted_sums(deltas_N: jax.Array, decays_N: jax.Array) -> jax.Array:
    """Solves A_t = delta_t + decay_t * A_{t+1} for all t at once."""

    def after(later: tuple[jax.Array, jax.Array], this: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        return this[0] * later[0], this[1] + this[0] * later[1]

    return jax.lax.associative_scan(after, (jnp.asarray(decays_N), jnp.asarray(deltas_N)), reverse=True)[1]
