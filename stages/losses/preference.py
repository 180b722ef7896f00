"""Preferences: a ``Loss`` over pairs of replies to one prompt, a chosen and a rejected one, that share a row.

Axes: B rows, T length of a row, P numbers of pairs in a row, 0 (padding) to T.
"""

from typing import Literal, Self

import jax
import jax.numpy as jnp
from pydantic import BaseModel, ConfigDict, Field, model_validator

from stages.losses.sequences import sequence_sums, spread
from stages.losses.tokens import Needs, Sums, Tokens, asked, masked, masked_sum


def preference_loss(margin: jax.Array, beta: float, label_smoothing: float, kind: Literal["sigmoid", "ipo"]) -> jax.Array:
    """Loss of pairs by their margin: how much more the policy moved the chosen reply from the reference than the rejected one.

    Args:
        margin: log(policy / reference) of the chosen reply, less that of the rejected one, nats; any shape.
        beta: see ``PreferenceLoss``.
        label_smoothing: see ``PreferenceLoss``.
        kind: see ``PreferenceLoss``.

    Source: ``sigmoid``: Rafailov et al. 2023, "Direct Preference Optimization" (arXiv 2305.18290), equation 7; label smoothing
        (cDPO): Mitchell 2023, "A note on DPO with noisy preferences". ``ipo``: Azar et al. 2023, "A General Theoretical
        Paradigm to Understand Learning from Human Preferences" (arXiv 2310.12036), equation 17, beta for its tau.
        We differ: nothing; as in the papers, log-probabilities of a reply are summed, also for ``ipo``, where TRL takes means.
    """
    if kind == "ipo":
        return jnp.square(margin - 1.0 / (2.0 * beta))
    scaled = beta * margin
    return -(1.0 - label_smoothing) * jax.nn.log_sigmoid(scaled) - label_smoothing * jax.nn.log_sigmoid(-scaled)


class PreferenceLoss(BaseModel):
    """Direct preference optimisation: a ``Loss``.

    A pair is two segments with numbers 2k - 1 and 2k of one row; their targets have advantages of 1 (chosen) and -1 (rejected).
    A pair counts once: the weights of targets are not read.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["sigmoid", "ipo"] = "sigmoid"
    """``sigmoid`` (DPO) pulls replies apart for ever; ``ipo`` until their margin is ``1 / (2 * beta)``."""
    beta: float = Field(default=0.1, gt=0.0)
    """How close to stay to the reference."""
    label_smoothing: float = Field(default=0.0, ge=0.0, lt=0.5)
    """Share of pairs taken to be the wrong way round (cDPO), with ``sigmoid``."""

    @model_validator(mode="after")
    def _settings_go_together(self) -> Self:
        if self.kind == "ipo" and self.label_smoothing:
            raise ValueError(
                f"expected no label_smoothing with kind='ipo', got {self.label_smoothing}, in the loss; "
                "leave it out, or take kind='sigmoid'"
            )
        return self

    @property
    def needs(self) -> Needs:
        """Pairs and the reference."""
        return Needs(aggregation="pair", behaviour=False, reference=True, stale=False)

    def __call__(self, tokens: Tokens) -> tuple[jax.Array, Sums]:
        """Summed loss of the pairs, and what is reported.

        Returns:
            The loss, and the sums ``entropy``, ``accuracy`` (margin above 0), ``margin``, ``reward_chosen`` and
            ``reward_rejected`` (each beta times log(policy / reference)). The last four belong to a pair and are counted at
            each of its targets, so their means weigh a pair by its length.

        Raises:
            ValueError: there are no reference log-probabilities.
        """
        tokens = masked(tokens)
        moved_BT = tokens.advantages * (tokens.logprobs - asked(tokens.reference, "reference"))
        pairs_BT = (tokens.segments + 1) // 2
        margin_BP = sequence_sums(moved_BT, tokens.mask, pairs_BT)
        present_BP = sequence_sums(jnp.abs(tokens.advantages), tokens.mask, pairs_BT) > 0.0
        losses_BP = preference_loss(margin_BP, self.beta, self.label_smoothing, self.kind)
        rewards = {
            "reward_chosen": sequence_sums(moved_BT, tokens.mask & (tokens.advantages > 0.0), pairs_BT),
            "reward_rejected": -sequence_sums(moved_BT, tokens.mask & (tokens.advantages < 0.0), pairs_BT),
            "margin": margin_BP,
        }
        sums = {name: masked_sum(self.beta * spread(each_BP, pairs_BT), tokens.mask) for name, each_BP in rewards.items()}
        sums["accuracy"] = masked_sum(spread((margin_BP > 0.0).astype(jnp.float32), pairs_BT), tokens.mask)
        sums["entropy"] = masked_sum(tokens.entropy, tokens.mask)
        return jnp.sum(jnp.where(present_BP, losses_BP, 0.0)), jax.lax.stop_gradient(sums)
