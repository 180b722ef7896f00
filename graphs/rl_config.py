"""Settings of reinforcement learning. The graph is in ``rl.py``; sets of them with a name are in ``algorithms.py``."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from graphs.drawing import DrawConfig
from graphs.heldout_config import HeldoutConfig
from graphs.rl_faults import of_learning, of_schedule, of_sizes
from graphs.scoring_config import CriticConfig, ReferenceConfig, TeacherConfig
from graphs.tool_pools import ToolPoolsConfig
from stages.advantages.config import AdvantagesConfig
from stages.agents.guards import TimeLimits
from stages.agents.sampling import SamplingConfig
from stages.losses.policy import PolicyLoss
from stages.losses.tokens import Needs
from stages.train.config import TrainerConfig
from stages.train.gate import GateConfig
from stages.train.whitening import with_silent


class RlConfig(ToolPoolsConfig):
    """Reinforcement learning with groups."""

    steps: int = Field(default=50, ge=1)
    """Optimizer steps."""
    groups_per_step: int = Field(default=16, ge=1)
    """Groups, and so tasks, in a step."""
    group_size: int = Field(default=8, ge=1)
    """Episodes of each task; 2 or more where the advantages compare them, and more than their k."""
    max_lag: int = Field(default=0, ge=0)
    """Most versions between the dispatch of an episode and the step that trains it. 0 is strictly on-policy."""
    late: Literal["wait", "drop"] = "wait"
    """With a lag above 0: whether a step waits for slow groups, or drops what became too old."""
    barrier: Literal["group", "batch"] = "group"
    """What training waits for. ``group``: a complete group, whose gradient is taken while others of its step are still being
    made. ``batch``: all episodes of a step, as in the synchronous baseline; with a max_lag of 0 only, so that nothing of a step
    begins before the weights of the one before are in force. The numbers are those of ``group``, to the bit."""
    member_retries: int = Field(default=1, ge=0)
    """How often a failed member is tried again before its group is dropped."""
    max_concurrency: int = Field(default=128, ge=1)
    """Episodes at once."""
    seed: int | None = Field(default=None, ge=0, lt=2**31)
    """Decides the order of the tasks, and nothing else; ``None`` takes the run's."""
    draw: DrawConfig = DrawConfig()
    """How tasks are drawn: alike, by weights of their sources, or by a curriculum."""
    sampling: SamplingConfig = SamplingConfig()
    """Temperature, stops and budgets of episodes. Draws from all tokens: a temperature above 0, and nothing that truncates."""
    limits: TimeLimits = TimeLimits()
    """Time limits of an episode."""
    overlong_buffer: Annotated[int, Field(ge=1)] | Literal["fifth"] | None = None
    """Tokens before the most that an episode may sample, over which its length comes to cost a reward of 1: the soft penalty of
    DAPO, ``stages/rewards/overlong.py``. ``fifth``: a fifth of them, as there. ``None`` for no penalty."""
    advantages: AdvantagesConfig = AdvantagesConfig()
    """From rewards to advantages."""
    reference: ReferenceConfig | None = None
    """The reference model; ``None`` for none, which is refused where the advantages or the loss read one."""
    teacher: TeacherConfig | None = None
    """How the teacher of the parts is asked; ``None`` for none, which is refused where the advantages read one."""
    critic: CriticConfig | None = None
    """The critic; ``None`` for none, which is refused where the advantages or the loss read one."""
    loss: PolicyLoss = PolicyLoss()
    """Ratio, bounds, corrections and penalties of the policy loss."""
    trainer: TrainerConfig = TrainerConfig(row_length=128)
    """Optimizer and micro-batches."""
    heldout: HeldoutConfig = HeldoutConfig()
    """Evaluation during training."""
    gate: GateConfig = GateConfig()
    """Tolerances of the run, and what follows when one is left."""

    @field_validator("sampling")
    @classmethod
    def _draws_from_all_tokens(cls, sampling: SamplingConfig) -> SamplingConfig:
        if sampling.truncates or sampling.temperature == 0:
            raise ValueError(
                "expected sampling from the whole distribution, which is what the trainer scores: a temperature above 0, "
                f"top_k=0, top_p=1, min_p=0; got temperature={sampling.temperature:g}, top_k={sampling.top_k}, "
                f"top_p={sampling.top_p:g}, min_p={sampling.min_p:g}, in rl.sampling; set them back there, "
                "and truncate in evaluate.sampling only"
            )
        return sampling

    @model_validator(mode="after")
    def _asks_what_is_read(self) -> Self:
        rule, loss = self.advantages, self.loss.needs
        asked = (
            ("reference", rule.needs_reference or loss.reference, self.reference),
            ("teacher", rule.needs_teacher, self.teacher),
            ("critic", rule.needs_critic or loss.critic, self.critic),
        )
        missing = [name for name, read, given in asked if read and given is None]
        idle = [name for name, read, given in asked if given is not None and not read]
        if missing or idle:
            got = [f"no {name}, which they read" for name in missing] + [f"a {name}, which neither reads" for name in idle]
            typed = [f"rl.{name}:{name}-config" for name in missing] + [f"rl.{name}:none" for name in idle]
            raise ValueError(
                f"expected the models that the advantages (rule={rule.rule}) and the loss read, and no other; got "
                f"{' and '.join(got)}; end the command line with {' '.join(typed)}, or change what reads it"
            )
        return self

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        faults = [
            *of_schedule(self.barrier, self.max_lag),
            *of_learning(self.advantages, self.loss, self.group_size),
            *of_sizes(self.trainer.num_minibatches, self.groups_per_step, self.buffer_tokens, self.max_sampled),
        ]
        if faults:
            raise ValueError("; ".join(faults))
        return self

    @property
    def max_sampled(self) -> int:
        """Most tokens that an episode may sample."""
        return self.sampling.max_tokens_per_turn * self.sampling.max_turns

    @property
    def buffer_tokens(self) -> int | None:
        """``overlong_buffer`` in tokens."""
        return max(1, self.max_sampled // 5) if self.overlong_buffer == "fifth" else self.overlong_buffer

    @property
    def packed_needs(self) -> Needs:
        """What is packed: what the loss needs, a length left open filled in. To whiten, an advantage of 0 counts too."""
        needs = self.loss.needs.filled(self.max_sampled)
        return with_silent(needs) if self.advantages.whiten else needs
