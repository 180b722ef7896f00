"""Settings of reinforcement learning that each can be, and not together: what is wrong, as sentences. Pure.

Those of models that are asked and not read are in ``rl_config.py``.
"""

from collections.abc import Iterator

from stages.advantages.config import AdvantagesConfig
from stages.losses.policy import PolicyLoss


def of_learning(rule: AdvantagesConfig, loss: PolicyLoss, group_size: int) -> Iterator[str]:
    """Why no advantage or no return would come of it.

    Args:
        rule: from rewards to advantages.
        loss: that reads them.
        group_size: episodes of a group.
    """
    if group_size < rule.min_group_size:
        own = f"rule={rule.rule}" + f" and k={rule.k}" * (rule.rule == "pass_at_k") + " and a baseline" * rule.baseline
        yield (
            f"expected a group_size of at least {rule.min_group_size} with {own} of the advantages, which are all 0 in a "
            f"smaller group; got {group_size}; raise group_size" + " or lower k" * (rule.rule == "pass_at_k")
        )
    if loss.needs.critic and not rule.needs_critic:
        yield (
            f"expected rule=gae with value_coefficient={loss.value_coefficient}, got {rule.rule}, in advantages: no other "
            "gives the critic its returns; set either"
        )


def of_schedule(barrier: str, max_lag: int) -> Iterator[str]:
    """Why a schedule would not be the one that was asked for.

    Args:
        barrier: what training waits for.
        max_lag: most versions between the dispatch of an episode and the step that trains it.
    """
    if barrier == "batch" and max_lag > 0:
        yield (
            f"expected max_lag=0 with barrier=batch, where no episode begins before the weights of the step before are in "
            f"force; got {max_lag}; set max_lag=0, or barrier=group"
        )


def of_sizes(num_minibatches: int, groups_per_step: int, buffer_tokens: int | None, max_sampled: int) -> Iterator[str]:
    """What is larger than the whole that it is a part of.

    Args:
        num_minibatches: updates in a pass over a step.
        groups_per_step: groups of a step.
        buffer_tokens: over which length comes to cost a reward; ``None`` for none.
        max_sampled: most tokens that an episode may sample.
    """
    if num_minibatches > groups_per_step:
        yield (
            f"expected trainer.num_minibatches of at most groups_per_step={groups_per_step}, a minibatch being made of whole "
            f"groups; got {num_minibatches}; lower the one or raise the other"
        )
    if (buffer_tokens or 0) > max_sampled:
        yield (
            f"expected an overlong_buffer of at most the {max_sampled} tokens that an episode may sample, got {buffer_tokens}; "
            "take a 'fifth' of them, as DAPO does"
        )
