"""What a loss sees, and what it says of itself. No logits, no parameters, no model.

Axes: B rows, T length of a row.
"""

from typing import Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import msgspec

Sums = dict[str, jax.Array]
"""float32 scalars, each a sum over the target tokens; divided by their number it is the mean that is reported."""
Aggregation = Literal["token", "sequence", "constant", "pair"]
"""How the losses of tokens become one number. ``token``: the mean over all tokens of the step. ``sequence``: the mean over
episodes of the mean over their tokens. ``constant``: the sum, over episodes times a fixed length. ``pair``: the mean over
pairs."""


class Tokens(NamedTuple):
    """Target tokens of one micro-batch. Values where ``mask`` is False mean nothing and may be NaN."""

    logprobs: jax.Array
    """float32 [B, T]: log-probability of the token under the parameters being trained."""
    entropy: jax.Array
    """float32 [B, T]: entropy in nats of the distribution that predicted the token."""
    mask: jax.Array
    """bool [B, T]: True for targets."""
    segments: jax.Array
    """int32 [B, T]: number of the segment in its row, from 1; 0 for padding. Those of a unit of two follow one another, the
    first of them with an odd number."""
    weights: jax.Array
    """float32 [B, T]: share of a target in the summed loss."""
    advantages: jax.Array
    """float32 [B, T]"""
    behaviour: jax.Array
    """float32 [B, T]: log-probability of the token under the distribution it was sampled from."""
    proximal: jax.Array | None = None
    """float32 [B, T]: the same under the parameters at the beginning of the step. ``None`` where a step has a single update:
    then these are the parameters being trained, and ``stop_gradient(logprobs)`` is the same. ``None`` as well where the loss
    does not need them."""
    reference: jax.Array | None = None
    """float32 [B, T]: the same under the reference model; ``None`` where there is none."""
    values: jax.Array | None = None
    """float32 [B, T]: what the critic being trained says of what came before the token; ``None`` where there is none."""
    old_values: jax.Array | None = None
    """float32 [B, T]: what it said when the advantages were made."""
    returns: jax.Array | None = None
    """float32 [B, T]: what it should say."""


class Needs(msgspec.Struct, frozen=True):
    """What a loss asks of those who feed it."""

    aggregation: Aggregation = "token"
    """How the losses of tokens become one number."""
    constant_length: int | None = None
    """Tokens that an episode counts for, with ``constant``: to be filled in before anything is packed, where a loss leaves it
    to the graph. ``None`` otherwise."""
    behaviour: bool = True
    """Whether it reads behaviour log-probabilities."""
    proximal: bool = False
    """Whether it tells log-probabilities at the beginning of a step from those being trained. A step of several updates then
    begins with a pass that computes them."""
    reference: bool = False
    """Whether it reads the reference model's."""
    critic: bool = False
    """Whether it reads values and returns."""
    silent: bool = False
    """Whether a target with an advantage of 0 has a gradient all the same. If not, such tokens are left out of the rows."""
    stale: bool = True
    """Whether it bounds or corrects what older weights sampled."""

    def filled(self, max_sampled: int) -> "Needs":
        """With the constant length that a loss left open: the most tokens that an episode may sample."""
        is_open = self.aggregation == "constant" and self.constant_length is None
        return msgspec.structs.replace(self, constant_length=max_sampled) if is_open else self

    @property
    def arrays(self) -> tuple[str, ...]:
        """Names of the optional arrays of rows that it reads."""
        return ("reference",) * self.reference + ("values", "returns") * self.critic


class Loss(Protocol):
    """Hashable, as frozen configs are: the same loss compiles once."""

    @property
    def needs(self) -> Needs:
        """What it asks of those who feed it."""
        ...

    def __call__(self, tokens: Tokens) -> tuple[jax.Array, Sums]:
        """(summed loss, sums to report). Sums and never means: micro-batches of any cut then add up to the same number."""
        ...


def masked(tokens: Tokens) -> Tokens:
    """The same targets, and 0 in every array of numbers where there is none.

    A loss begins with this: whatever stands outside the mask must be gone before the arithmetic, because NaN times 0 is NaN, in
    the value and in the gradient.
    """
    whole = ("mask", "segments")
    numbers = {name: array for name, array in tokens._asdict().items() if name not in whole and array is not None}
    return tokens._replace(**{name: jnp.where(tokens.mask, array, 0.0) for name, array in numbers.items()})


def asked(array: jax.Array | None, name: str) -> jax.Array:
    """An optional array of ``Tokens`` that the loss asked for in its ``needs``.

    Raises:
        ValueError: it is not there.
    """
    if array is None:
        raise ValueError(f"expected Tokens.{name}, got None, in a loss whose needs ask for it; let the step fill it")
    return array


def masked_sum(values_BT: jax.Array, mask_BT: jax.Array) -> jax.Array:
    """Sum over the targets; whatever stands elsewhere, NaN included, is not looked at."""
    return jnp.sum(jnp.where(mask_BT, values_BT, 0.0))
