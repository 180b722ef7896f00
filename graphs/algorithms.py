"""Algorithms by name: each a change of the settings of reinforcement learning, over the one graph of ``rl.py``.

What is not named stays what it was. ``headrace run NAME --algorithm dapo`` begins with these settings, and any can be set again
beside it. The rules and losses themselves are in ``stages/advantages`` and ``stages/losses``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from graphs.rl_config import RlConfig
from graphs.scoring_config import CriticConfig, ReferenceConfig, TeacherConfig
from stages.advantages.config import AdvantagesConfig
from stages.losses.policy import PolicyLoss


@dataclass(frozen=True)
class Algorithm:
    """Settings with a name.

    Attributes:
        title: one line on what sets it apart.
        change: gives the settings.
    """

    title: str
    change: Callable[[RlConfig], RlConfig]


def changed(config: RlConfig, **settings: Any) -> RlConfig:
    """The settings with some others, checked again as a whole."""
    return RlConfig.model_validate({**{name: getattr(config, name) for name in type(config).model_fields}, **settings})


def grpo(config: RlConfig) -> RlConfig:
    """Shao et al. 2024, arXiv 2402.03300. We differ: a mean over tokens, not over replies first, and no KL unless asked for."""
    return changed(config, advantages=AdvantagesConfig(), loss=PolicyLoss())


def dr_grpo(config: RlConfig) -> RlConfig:
    """Liu et al. 2025, arXiv 2503.20783: no deviation, and a constant in place of lengths, the most tokens of an episode."""
    return changed(config, advantages=AdvantagesConfig(scale=False), loss=PolicyLoss(aggregation="constant"))


def dapo(config: RlConfig) -> RlConfig:
    """Yu et al. 2025, arXiv 2503.14476: a wider upper clip, groups without signal replaced, cut episodes masked, a token mean.

    The last fifth of an episode's tokens comes to cost a reward, as there.
    """
    advantages = AdvantagesConfig(overlong="mask", filter_no_signal=True)
    loss = PolicyLoss(clip_low=0.2, clip_high=0.28)
    return changed(config, advantages=advantages, loss=loss, overlong_buffer="fifth")


def rloo(config: RlConfig) -> RlConfig:
    """Ahmadian et al. 2024, arXiv 2402.14740: against the mean of the others. We differ: the clip stays, for what is stale."""
    return changed(config, advantages=AdvantagesConfig(rule="rloo"), loss=PolicyLoss())


def reinforce_pp(config: RlConfig) -> RlConfig:
    """Hu 2025, arXiv 2501.03262: KL taken off the reward token by token, and advantages whitened over the step."""
    rule = AdvantagesConfig(rule="reinforce_pp", kl_coefficient=0.001, whiten=True)
    return changed(config, advantages=rule, loss=PolicyLoss(), reference=config.reference or ReferenceConfig())


def gspo(config: RlConfig) -> RlConfig:
    """Zheng et al. 2025, arXiv 2507.18071: one ratio for a sequence, with its narrow clip, and a mean over sequences."""
    loss = PolicyLoss(ratio="sequence", clip_low=3e-4, clip_high=4e-4, aggregation="sequence")
    return changed(config, advantages=AdvantagesConfig(), loss=loss)


def cispo(config: RlConfig) -> RlConfig:
    """MiniMax 2025, arXiv 2506.13585: the ratio is a bounded weight, so every token keeps its gradient.

    The paper does not give its upper bound; a ratio of 5 is at most that of Khatri et al. 2025, arXiv 2510.13786.
    """
    return changed(config, advantages=AdvantagesConfig(), loss=PolicyLoss(objective="cispo", clip_low=1.0, clip_high=4.0))


def ppo(config: RlConfig) -> RlConfig:
    """Schulman et al. 2017, arXiv 1707.06347: a critic with GAE, and several updates on what a step collected.

    Decoupled (Hilton et al. 2022, arXiv 2110.00641): weighted by what the step's first weights say of older samples. Groups do
    not matter to it: ``group_size`` may be 1, with as many more groups in a step.
    """
    return changed(
        config,
        advantages=AdvantagesConfig(rule="gae", gae_lambda=0.95, whiten=True),
        loss=PolicyLoss(against="proximal", correction="truncated", value_coefficient=0.5, value_clip=0.2),
        critic=config.critic or CriticConfig(),
        trainer=config.trainer.model_copy(update={"num_epochs": 2, "num_minibatches": min(4, config.groups_per_step)}),
    )


def distill(config: RlConfig) -> RlConfig:
    """On-policy distillation: at each token the policy's own samples are pulled to what a teacher says of them.

    Agarwal et al. 2024, arXiv 2306.13649, with reverse KL on samples of the policy alone. No reward takes part.
    """
    asked = config.teacher or TeacherConfig()
    return changed(config, advantages=AdvantagesConfig(rule="distill"), loss=PolicyLoss(), teacher=asked)


ALGORITHMS: Mapping[str, Algorithm] = {
    "grpo": Algorithm("a member against the mean and deviation of its group", grpo),
    "dr_grpo": Algorithm("GRPO without the two divisions that favour some questions and lengths", dr_grpo),
    "dapo": Algorithm("GRPO with a wider upper clip, without groups that say nothing and episodes that were cut", dapo),
    "rloo": Algorithm("a member against the mean of the others", rloo),
    "reinforce_pp": Algorithm("no groups: rewards less KL, whitened over the step", reinforce_pp),
    "gspo": Algorithm("GRPO with one ratio for a sequence", gspo),
    "cispo": Algorithm("GRPO with ratios as bounded weights", cispo),
    "ppo": Algorithm("a critic, GAE, and several updates a step", ppo),
    "distill": Algorithm("a teacher's opinion of each token in place of rewards", distill),
}
"""By name."""
