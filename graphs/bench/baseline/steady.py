"""Whether tokens that were sampled would be the same on a machine that rounds otherwise.

A draw inverts a running sum of probabilities at a random number. Where that number lies close to a step of the sum, a rounding
error decides. So each draw is made again with its logits put off by far more than any rounding, in many ways: a draw that
gives the same token each time is no close call. The seed of the baseline is one of which every draw is steady.
"""

import jax
import jax.numpy as jnp
import numpy as np

from graphs.bench.baseline.observed import Observed
from graphs.bench.plain import PlainForward
from stages.models.transformer import Transformer
from stages.records import Episode
from stages.rollout.sampling import Draw, request_key, sample_tokens

OFF = 1e-3
"""Most that a logit is put off, in nats. Two machines, or two shapes of one, are some 1e-6 to 1e-5 apart."""
WAYS = 256
"""Ways to put all logits of a draw off at random."""
_sample = jax.jit(sample_tokens)


def steady_draws(observed: Observed, model: Transformer, context_length: int, seed: int) -> tuple[int, int]:
    """How many tokens the run sampled, and how many of them are steady.

    Args:
        observed: a run in which an engine sampled at temperature 1, from the whole vocabulary.
        model: of its weights.
        context_length: of the engine.
        seed: of its sampling.
    """
    forward = PlainForward(model, context_length)
    noise = np.random.default_rng(0).uniform(-OFF, OFF, (WAYS, model.config.vocab_size)).astype(np.float32)
    steady = total = 0
    for episode in observed.episodes:
        for turn, span in enumerate(episode.turns):
            key = (seed, episode.birth, episode.member, episode.retry, turn)
            for place in range(span.start, span.stop):
                forward.put(observed.weights[int(episode.versions[place])])
                total += 1
                steady += _is_steady(forward, noise, episode, place, key)
    return total, steady


def _is_steady(
    forward: PlainForward, noise: np.ndarray, episode: Episode, place: int, key: tuple[int, int, int, int, int]
) -> bool:
    ones, zeros = np.ones(WAYS, np.float32), np.zeros(WAYS, np.float32)
    keys = np.tile(request_key(key), (WAYS, 1))
    draw = Draw(ones, np.zeros(WAYS, np.int32), ones, zeros, np.zeros(WAYS, bool), keys)
    logits_V = forward(episode.ids[:place])[-1]
    drawn = _sample(jnp.asarray(noise + logits_V), draw, np.full(WAYS, place, np.int32))
    return bool((np.asarray(drawn.ids_S) == episode.ids[place]).all())
