"""The policy loss: ratio, objective, correction, KL, entropy and value terms put together, and the settings that choose them.

Each part is a pure function in a file of its own; this one only adds them up. With the defaults it is the clipped loss of PPO
on behaviour log-probabilities: the ratio is taken against the distribution that *sampled* the token, as recorded by the engine,
and there is no second forward pass of an "old" policy. So staleness and any difference of engine and trainer are both inside
the ratio, and bounded by the clip.

Axes: B rows, T length of a row.
"""

from typing import Literal, Self

import jax
import jax.numpy as jnp
from pydantic import BaseModel, ConfigDict, Field, model_validator

from stages.losses.cispo import cispo_objective
from stages.losses.clipped import Objective, clipped_objective
from stages.losses.correction import CorrectionKind, CorrectionLevel, importance_weight
from stages.losses.kl import KlEstimator, reference_kl
from stages.losses.ratios import RatioLevel, bounded, likelihood_ratio
from stages.losses.tokens import Needs, Sums, Tokens, asked, masked, masked_sum
from stages.losses.value import value_loss, value_sums


class PolicyLoss(BaseModel):
    """A policy gradient: a ``Loss``.

    The summed loss is, over the targets, ``weight * (-importance weight * objective + kl_coefficient * KL - entropy_coefficient
    * entropy + value_coefficient * value loss)``, ``weight`` being the target's share by ``aggregation``.

    Source: see the functions in ``ratios``, ``clipped``, ``cispo``, ``correction``, ``kl`` and ``value``.
        We differ: behaviour log-probabilities in place of a recomputed old policy, unless ``against`` says otherwise; values
        are summed, and who calls divides once by the divisor of the whole step, so that ``sequence`` is a mean over the
        episodes of the step, where GRPO takes it group by group.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    ratio: RatioLevel = "token"
    """Of a token (PPO, GRPO, DAPO), of its sequence (GSPO), or both (GSPO-token): see ``RatioLevel``."""
    objective: Literal["clip", "cispo"] = "clip"
    """``clip``: beyond its bound a ratio gives no gradient (PPO). ``cispo``: beyond its bound a ratio is the bound, as a
    weight, and every token keeps its gradient."""
    clip_low: float = Field(default=0.2, gt=0.0, le=1.0)
    """How far the ratio may fall below 1: with ``clip``, before a token with a negative advantage stops giving a gradient. 1
    sets no lower bound, as CISPO has it."""
    clip_high: float | None = Field(default=None, gt=0.0)
    """How far it may rise above 1: with ``clip``, for a token with a positive advantage; ``None`` takes ``clip_low``."""
    dual_clip: float | None = Field(default=None, gt=1.0)
    """Largest ratio of a token with a negative advantage, with ``clip``; ``None`` for any."""
    against: Literal["behaviour", "proximal"] = "behaviour"
    """What the ratio compares with: the distribution that sampled the token, or the parameters at the beginning of the step
    (decoupled PPO). With ``proximal``, a step of a single update has a ratio of 1 everywhere."""
    correction: Literal["none"] | CorrectionKind = "none"
    """Importance weight of ``proximal`` over ``behaviour`` on the objective: see ``CorrectionKind``. Against ``behaviour`` the
    ratio is that weight already, so ``masked`` only leaves tokens out, and ``truncated`` is refused."""
    correction_level: CorrectionLevel = "token"
    """What has one weight: see ``CorrectionLevel``."""
    correction_cap: float | None = Field(default=2.0, gt=0.0)
    """Largest importance weight; ``None`` for any."""
    correction_floor: float | None = Field(default=None, gt=0.0)
    """Smallest importance weight, with ``masked``; ``None`` for any."""
    kl_coefficient: float = Field(default=0.0, ge=0.0)
    """Share of the divergence from the reference in the loss; 0 needs no reference."""
    kl_estimator: KlEstimator = "k3"
    """How it is estimated, and which way round its gradient goes: see ``stages/losses/kl.py``."""
    entropy_coefficient: float = Field(default=0.0, ge=0.0)
    """Share of the entropy, in nats, taken off the loss."""
    value_coefficient: float = Field(default=0.0, ge=0.0)
    """Share of the critic's loss; 0 needs no critic."""
    value_clip: float | None = Field(default=None, gt=0.0)
    """How far a value may go from what it was when the advantages were made, and still gain; ``None`` for any."""
    aggregation: Literal["token", "sequence", "constant"] = "token"
    """Mean over the tokens of a step (DAPO), over its episodes of the mean over their tokens (GRPO), or the sum over episodes
    times ``constant_length`` (Dr. GRPO)."""
    constant_length: int | None = Field(default=None, ge=1)
    """Tokens that an episode counts for, with ``constant``; ``None`` for the most that an episode may sample, which the graph
    knows."""

    @model_validator(mode="after")
    def _settings_go_together(self) -> Self:
        if faults := self._faults():
            raise ValueError("; ".join(faults))
        return self

    def _faults(self) -> list[str]:
        cap, floor = self.correction_cap, self.correction_floor
        rules = (
            (
                self.aggregation == "constant" or self.constant_length is None,
                "expected constant_length with aggregation='constant' only, "
                f"got {self.constant_length} with {self.aggregation!r}, in the loss; set both or none",
            ),
            (
                self.dual_clip is None or self.objective == "clip",
                f"expected no dual_clip with objective={self.objective!r}, whose weights are bounded already, "
                f"got {self.dual_clip}, in the loss; leave it out",
            ),
            (
                self.correction != "truncated" or self.against == "proximal",
                "expected against='proximal' with correction='truncated', got 'behaviour', whose ratio holds that weight "
                "already, in the loss; set against, or take the correction out",
            ),
            (
                floor is None or self.correction == "masked",
                f"expected correction_floor with correction='masked' only, got {floor} with {self.correction!r}, in the loss; "
                "leave it out",
            ),
            (
                self.correction != "masked" or cap is not None or floor is not None,
                "expected a correction_cap or a correction_floor with correction='masked', got neither, in the loss; set one",
            ),
            (
                cap is None or floor is None or floor < cap,
                f"expected correction_floor below correction_cap={cap}, got {floor}, in the loss; lower it",
            ),
        )
        return [fault for holds, fault in rules if not holds]

    @property
    def needs(self) -> Needs:
        """The reference and the critic where their terms count, and whether silent and stale tokens are looked after."""
        extra = self.kl_coefficient > 0 or self.entropy_coefficient > 0 or self.value_coefficient > 0
        return Needs(
            aggregation=self.aggregation,
            constant_length=self.constant_length,
            proximal=self.against == "proximal" or self.correction != "none",
            reference=self.kl_coefficient > 0,
            critic=self.value_coefficient > 0,
            silent=extra,
            stale=self.against == "behaviour" or self.correction != "none",
        )

    def __call__(self, tokens: Tokens) -> tuple[jax.Array, Sums]:
        """Summed loss and sums to report.

        Returns:
            The loss, and always the sums ``clip_fraction`` (targets whose bound binds) with its parts ``clip_fraction_low`` and
            ``clip_fraction_high``, ``ratio``, ``kl`` (k3 estimate of KL(behaviour || current)), ``logprob_gap`` (absolute
            difference of the two log-probabilities) and ``entropy``. Where they are on: ``clip_fraction_dual``;
            ``importance_weight`` and ``correction_fraction`` (targets truncated or masked); ``kl_reference``; ``value_loss``,
            ``value_clip_fraction`` and what ``value_sums`` gives.

        Raises:
            ValueError: an array is missing that ``needs`` asks for.
        """
        tokens = masked(tokens)
        proximal_BT = jax.lax.stop_gradient(tokens.logprobs) if tokens.proximal is None else tokens.proximal
        old_BT = tokens.behaviour if self.against == "behaviour" else proximal_BT
        ratio_BT = likelihood_ratio(tokens.logprobs, old_BT, tokens.mask, tokens.segments, self.ratio)
        objective = self._objective(ratio_BT, tokens)
        loss_BT, sums = -objective.value, _sums(tokens, ratio_BT, objective)
        for term in (self._corrected, self._with_kl, self._with_entropy, self._with_value):
            loss_BT, more = term(loss_BT, tokens)
            sums |= more
        return jnp.sum(loss_BT * tokens.weights), jax.lax.stop_gradient(sums)

    def _objective(self, ratio_BT: jax.Array, tokens: Tokens) -> Objective:
        clip_high = self.clip_low if self.clip_high is None else self.clip_high
        if self.objective == "cispo":
            return cispo_objective(ratio_BT, tokens.logprobs, tokens.advantages, self.clip_low, clip_high)
        return clipped_objective(ratio_BT, tokens.advantages, self.clip_low, clip_high, self.dual_clip)

    def _corrected(self, loss_BT: jax.Array, tokens: Tokens) -> tuple[jax.Array, Sums]:
        if self.correction == "none":
            return loss_BT, {}
        weight_BT, out_BT = importance_weight(
            tokens.logprobs if tokens.proximal is None else tokens.proximal, tokens.behaviour, tokens.mask, tokens.segments,
            self.correction, self.correction_level, self.correction_cap, self.correction_floor,
        )  # fmt: skip
        factor_BT = weight_BT if self.against == "proximal" else jnp.where(out_BT, 0.0, 1.0).astype(weight_BT.dtype)
        return loss_BT * factor_BT, {
            "importance_weight": masked_sum(weight_BT, tokens.mask),
            "correction_fraction": _count(out_BT, tokens.mask),
        }

    def _with_kl(self, loss_BT: jax.Array, tokens: Tokens) -> tuple[jax.Array, Sums]:
        if self.kl_coefficient == 0:
            return loss_BT, {}
        kl_BT = reference_kl(tokens.logprobs, asked(tokens.reference, "reference"), self.kl_estimator)
        return loss_BT + self.kl_coefficient * kl_BT, {"kl_reference": masked_sum(kl_BT, tokens.mask)}

    def _with_entropy(self, loss_BT: jax.Array, tokens: Tokens) -> tuple[jax.Array, Sums]:
        # Not times 0: the gradient of the entropy would be computed all the same, over the whole vocabulary.
        return (loss_BT - self.entropy_coefficient * tokens.entropy if self.entropy_coefficient else loss_BT), {}

    def _with_value(self, loss_BT: jax.Array, tokens: Tokens) -> tuple[jax.Array, Sums]:
        if self.value_coefficient == 0:
            return loss_BT, {}
        values_BT, returns_BT = asked(tokens.values, "values"), asked(tokens.returns, "returns")
        error_BT, clipped_BT = value_loss(values_BT, asked(tokens.old_values, "old_values"), returns_BT, self.value_clip)
        return loss_BT + self.value_coefficient * error_BT, {
            "value_loss": masked_sum(error_BT, tokens.mask),
            "value_clip_fraction": _count(clipped_BT, tokens.mask),
            **value_sums(values_BT, returns_BT, tokens.mask),
        }


def _sums(tokens: Tokens, ratio_BT: jax.Array, objective: Objective) -> Sums:
    """What every policy loss reports."""
    gap_BT = tokens.logprobs - tokens.behaviour
    sums = {
        "clip_fraction": _count(objective.low | objective.high, tokens.mask),
        "clip_fraction_low": _count(objective.low, tokens.mask),
        "clip_fraction_high": _count(objective.high, tokens.mask),
        "kl": masked_sum(jnp.expm1(bounded(gap_BT)) - bounded(gap_BT), tokens.mask),
        "logprob_gap": masked_sum(jnp.abs(gap_BT), tokens.mask),
        "ratio": masked_sum(ratio_BT, tokens.mask),
        "entropy": masked_sum(tokens.entropy, tokens.mask),
    }
    return sums if objective.dual is None else sums | {"clip_fraction_dual": _count(objective.dual, tokens.mask)}


def _count(where_BT: jax.Array, mask_BT: jax.Array) -> jax.Array:
    return masked_sum(where_BT.astype(jnp.float32), mask_BT)
