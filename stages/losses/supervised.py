"""Cross-entropy on demonstrations: a ``Loss`` that reads no advantage and no behaviour log-probability.

Axes: B rows, T length of a row.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from pydantic import BaseModel, ConfigDict

from stages.losses.tokens import Needs, Sums, Tokens, masked, masked_sum


class SupervisedLoss(BaseModel):
    """The negative log-probability of the targets."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    aggregation: Literal["token", "sequence"] = "token"
    """Mean over all tokens of a step, or over demonstrations of the mean over their tokens."""

    @property
    def needs(self) -> Needs:
        """Targets alone."""
        return Needs(aggregation=self.aggregation, behaviour=False, silent=True, stale=False)

    def __call__(self, tokens: Tokens) -> tuple[jax.Array, Sums]:
        """Summed loss, and the sum ``entropy``."""
        tokens = masked(tokens)
        sums = {"entropy": masked_sum(tokens.entropy, tokens.mask)}
        return -jnp.sum(tokens.logprobs * tokens.weights), jax.lax.stop_gradient(sums)
