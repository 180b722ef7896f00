"""Group-relative policy optimisation of an agent.

prompts >> members >> episodes >> groups >> rewards >> advantages >> batches >> trainer
                         ^                                                         |
                         +-------------------- weights, max_lag -------------------+
"""

from typing import Literal

from pydantic import Field, field_validator

from flow import Collect, Freshness, Graph, Retry, Threads
from graphs.engine_pools import engine_pools
from graphs.parts import Parts
from graphs.tool_pools import ToolPoolsConfig, with_tool_pools
from stages.advantages.stage import Advantages, AdvantagesConfig
from stages.agents.agent import sessions_of
from stages.agents.guards import TimeLimits
from stages.agents.sampling import SamplingConfig
from stages.batches.stage import Pack, PackConfig
from stages.checkpoint.store import CheckpointStore
from stages.episodes import Episodes
from stages.losses.policy import PolicyLoss
from stages.records import Weights
from stages.tasks.source import Tasks
from stages.train.config import TrainerConfig
from stages.train.trainer import Trainer


class RlConfig(ToolPoolsConfig):
    """Reinforcement learning with groups."""

    steps: int = Field(default=50, ge=1)
    """Optimizer steps."""
    groups_per_step: int = Field(default=16, ge=1)
    """Groups, and so tasks, in a step."""
    group_size: int = Field(default=8, ge=1)
    """Episodes of each task."""
    max_lag: int = Field(default=0, ge=0)
    """Most versions between the dispatch of an episode and the step that trains it. 0 is strictly on-policy."""
    late: Literal["wait", "drop"] = "wait"
    """With a lag above 0: whether a step waits for slow groups, or drops what became too old."""
    member_retries: int = Field(default=1, ge=0)
    """How often a failed member is tried again before its group is dropped."""
    max_concurrency: int = Field(default=128, ge=1)
    """Episodes at once."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    """Decides the order of the tasks."""
    sampling: SamplingConfig = SamplingConfig()
    """Temperature, stops and budgets of episodes. Draws from all tokens: a temperature above 0, and nothing that truncates."""
    limits: TimeLimits = TimeLimits()
    """Time limits of an episode."""
    advantages: AdvantagesConfig = AdvantagesConfig()
    """From rewards to advantages."""
    loss: PolicyLoss = PolicyLoss()
    """Ratio, bounds, corrections and penalties of the policy loss."""
    trainer: TrainerConfig = TrainerConfig(row_length=128)
    """Optimizer and micro-batches."""

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


def rl(config: RlConfig, parts: Parts, checkpoints: CheckpointStore | None = None) -> Graph:
    """Declare training.

    Args:
        config: see ``RlConfig``.
        parts: policy, world and tasks.
        checkpoints: where the trainer saves; ``None`` saves nothing.
    """
    pools = engine_pools(parts.engine.config, sessions_of(parts.agent))
    graph = Graph("rl", pools=with_tool_pools(pools.sizes, config, parts.tools, "rl"), rates=config.rates)
    weights = graph.latest("weights", Weights, load=parts.engine.load)
    episode = Episodes(parts.engine, parts.chat, parts.agent, parts.make_env, config.sampling, config.limits, pools.turn)
    learner = Trainer(parts.model, config.loss, config.trainer, checkpoints, temperature=config.sampling.temperature)

    prompts = graph.source("prompts", Tasks(parts.train, config.seed))
    members = graph.repeat("members", prompts, n=config.group_size)
    episodes = graph.stage("episodes", episode, workers=config.max_concurrency, needs=pools.episode, reads=weights)
    groups = graph.group("groups", episodes, missing=Retry(config.member_retries, then="drop"))
    rewards = graph.stage("rewards", parts.rewards())
    advantages = graph.stage("advantages", Advantages(config.advantages))
    batches = graph.stage("batches", Pack(PackConfig(row_length=config.trainer.row_length), config.loss.needs))
    collect = Collect(config.groups_per_step, steps=config.steps)
    trainer = graph.sink("trainer", learner, collect=collect, placement=Threads())

    prompts >> members >> episodes >> groups >> rewards >> advantages >> batches >> trainer
    freshness = Freshness(config.max_lag, config.late)
    graph.feedback(trainer, weights, initial=lambda: learner.weights, freshness=freshness)
    return graph
