"""Log-probability of each token given those before it in its segment, and the entropy it was drawn with. Pure; no loss here.

Axes: B rows, T tokens of a row, V vocabulary.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def token_logprobs(
    logits_BTV: Float[Array, "B T V"],
    ids_BT: Int[Array, "B T"],
    segments_BT: Int[Array, "B T"],
    temperature: float = 1.0,
) -> tuple[Float[Array, "B T"], Float[Array, "B T"]]:
    """Log-probabilities and entropies of packed rows, aligned to the token that is predicted.

    Args:
        logits_BTV: ``logits[b, t]`` scores the token after t.
        ids_BT: token ids.
        segments_BT: segment numbers, 0 for padding.
        temperature: divides the logits, as the sampler did; 0 stands for 1, as in ``stages.policy.SampleRequest``. Static.

    Returns:
        Log-probabilities and entropies, float32 [B, T], nats. Entry t belongs to token t and comes from the logits at t - 1.
        Both are 0 where there is nothing to predict from, the first token of a segment and padding: 0 and not NaN, because
        NaN would survive a multiplication by the mask, in the value and in the gradient. Such tokens are never targets.
    """
    scaled_BTV = logits_BTV[:, :-1] / (temperature or 1.0)
    all_logprobs_BTV = jax.nn.log_softmax(scaled_BTV, axis=-1)
    chosen_BT = jnp.take_along_axis(all_logprobs_BTV, ids_BT[:, 1:, None], axis=-1, mode="clip")[..., 0]
    entropy_BT = -jnp.sum(jnp.exp(all_logprobs_BTV) * all_logprobs_BTV, axis=-1)
    predicted_BT = (segments_BT[:, 1:] == segments_BT[:, :-1]) & (segments_BT[:, 1:] > 0)
    pad = ((0, 0), (1, 0))
    logprobs_BT = jnp.pad(jnp.where(predicted_BT, chosen_BT, 0.0), pad)
    return logprobs_BT, jnp.pad(jnp.where(predicted_BT, entropy_BT, 0.0), pad)
