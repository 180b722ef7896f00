"""How rewards become advantages: the settings of the advantage stage, and what they ask of a graph."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from stages.advantages.kl import KlEstimator

Rule = Literal["grpo", "rloo", "reinforce_pp", "pass_at_k", "gae", "turns", "distill"]

_READS: dict[str, frozenset[str]] = {
    "grpo": frozenset({"scale", "kl_coefficient", "kl_estimator", "filter_no_signal"}),
    "rloo": frozenset({"kl_coefficient", "kl_estimator", "filter_no_signal"}),
    "reinforce_pp": frozenset({"baseline", "discount", "kl_coefficient", "kl_estimator"}),
    "pass_at_k": frozenset({"k", "kl_coefficient", "kl_estimator", "filter_no_signal"}),
    "gae": frozenset({"discount", "gae_lambda", "kl_coefficient", "kl_estimator"}),
    "turns": frozenset({"scale", "discount", "kl_coefficient", "kl_estimator", "filter_no_signal"}),
    "distill": frozenset(),
}
"""Settings that each rule reads, those that all of them read apart."""
_READ_BY_ALL = frozenset({"rule", "overlong", "whiten"})
_RELATIVE = frozenset({"grpo", "rloo", "turns"})
"""Rules that compare the members of a group, beside ``pass_at_k``, and ``reinforce_pp`` with its baseline."""


class AdvantagesConfig(BaseModel):
    """How rewards of a group become advantages. A setting that the rule does not read is refused, unless it is the default."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rule: Rule = "grpo"
    """``grpo``: against mean and deviation of the group. ``rloo``: against the mean of the others. ``reinforce_pp``: what is
    still earned, to be whitened over the step. ``pass_at_k``: what a member adds to the best of k. ``gae``: against a critic.
    ``turns``: turn by turn within the group. ``distill``: against a teacher, without any reward."""
    scale: bool = True
    """Divide by the standard deviation of the group; False only centres, which with ``grpo`` is Dr. GRPO."""
    baseline: bool = False
    """Of ``reinforce_pp``: subtract the mean reward of the group first; a single live member then gets 0."""
    k: int = Field(default=4, ge=1)
    """Of ``pass_at_k``: members of which the best one counts; less than the size of a group."""
    discount: float = Field(default=1.0, ge=0.0, le=1.0)
    """How much less a reward is worth one sampled token later; with ``turns``, one turn later."""
    gae_lambda: float = Field(default=1.0, ge=0.0, le=1.0)
    """Of ``gae``: 0 trusts the critic alone, 1 the rewards alone."""
    kl_coefficient: float = Field(default=0.0, ge=0.0)
    """Reward taken off for each nat of distance to the reference model, at its token, before any statistics. 0 for none, which
    needs no reference model."""
    kl_estimator: KlEstimator = "k1"
    """How that distance is estimated from a sampled token: see ``kl.py``."""
    overlong: Literal["train", "mask"] = "train"
    """What becomes of members that were cut by a limit. ``train``: they are members like others. ``mask``: they take no part in
    statistics, in the divisor of the loss and in training (the overlong filter of DAPO)."""
    filter_no_signal: bool = False
    """Filter groups in which no member has an advantage. Their tickets go back and others are drawn within the same step (the
    dynamic sampling of DAPO); False lets them pass, counted by the trainer as ``no_signal_groups``, with nothing to train."""
    whiten: bool = False
    """Subtract the mean over all trained tokens of a step and divide by their deviation. The trainer does it, which alone knows
    them; it then starts on a step only when all its groups are there."""

    @model_validator(mode="after")
    def _reads_what_is_set(self) -> Self:
        read = _READS[self.rule] | _READ_BY_ALL | ({"filter_no_signal"} if self.baseline else set())
        fields = type(self).model_fields
        unread = [name for name, field in fields.items() if name not in read and getattr(self, name) != field.default]
        if unread:
            raise ValueError(
                f"expected settings that rule={self.rule} reads, got {', '.join(f'{n}={getattr(self, n)}' for n in unread)}, "
                f"in advantages; leave them at {', '.join(f'{n}={fields[n].default}' for n in unread)}, or change the rule"
            )
        return self

    @property
    def min_group_size(self) -> int:
        """Fewest members of a group in which one can have an advantage; in a smaller one all are 0, whatever the rewards."""
        if self.rule == "pass_at_k":
            return self.k + 1
        return 2 if self.rule in _RELATIVE or self.baseline else 1

    @property
    def needs_reference(self) -> bool:
        """Whether ``Episode.reference`` must be filled before."""
        return self.kl_coefficient > 0.0

    @property
    def needs_critic(self) -> bool:
        """Whether ``Episode.values`` must be filled before."""
        return self.rule == "gae"

    @property
    def needs_teacher(self) -> bool:
        """Whether ``Episode.teacher`` must be filled before."""
        return self.rule == "distill"
