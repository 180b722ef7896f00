"""A reference model that follows the policy: the parameters of every so many steps, or their moving average.

The trainer keeps it and publishes it with each version, so it is a function of the version alone: a cell that skips versions
because a load is slow loses no step of an average, and a run that goes on has the one it had. What scores with it is in
``stages/scoring``. A reference that never changes needs none of this.
"""

from typing import Any

import jax
import jax.numpy as jnp
from pydantic import BaseModel, ConfigDict, Field

from stages.train.step import cast_like


class FollowConfig(BaseModel):
    """How the reference follows.

    Source: Gorbatovski et al. 2024, "Learn Your Reference Model for Real Good Alignment", arXiv 2404.09656, section 3: the hard
    update is a decay of 0, the soft one a decay above 0 (their alpha is one minus it). We differ: with adapters, the adapters
    themselves are averaged and not their products.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    every: int = Field(default=1, ge=1)
    """Steps from one change of the reference to the next; steps that were skipped are counted."""
    decay: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Share of the reference that stays at a change. 0 takes the policy as it is then; above 0 it is a moving average."""


class Following:
    """The reference of one trainer.

    Args:
        config: see ``FollowConfig``.
        published: the policy's parameters before the first step, in its own types.

    Attributes:
        published: the reference, in the model's types; the same object until it changes.
        state: what a run needs to go on with it.
    """

    def __init__(self, config: FollowConfig, published: Any) -> None:
        self._config = config
        self._dtypes = tuple(leaf.dtype for leaf in jax.tree.leaves(published))
        self.published = self.state = published
        if config.decay > 0.0:  # in bfloat16 a small share would be lost in rounding
            self.state = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), published)
            cast_like(average(self.state, self.state, config.decay), self._dtypes)  # compiled now, not in the first step

    def advance(self, step: int, published: Any, masters: Any) -> None:
        """A step is complete.

        Args:
            step: its number, from 1, those of a resumed run included.
            published: the policy's parameters after it, in its own types; they are shared.
            masters: the same in float32.
        """
        if step % self._config.every:
            return
        if self._config.decay == 0.0:
            self.published = self.state = published
        else:
            self.restore(average(self.state, masters, self._config.decay))

    def restore(self, state: Any) -> None:
        """Go on with what ``state`` was."""
        self.state = state
        self.published = cast_like(state, self._dtypes)


@jax.jit
def average(before: Any, new: Any, decay: float) -> Any:
    """``decay * before + (1 - decay) * new``, leaf by leaf."""
    return jax.tree.map(lambda old, leaf: leaf + decay * (old - leaf), before, new)
