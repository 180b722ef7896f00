"""Held-out evaluation: every task is tried a number of times by the policy as it is.

tasks >> attempts >> episodes >> groups >> rewards >> scores
"""

from typing import Self

from pydantic import Field, model_validator

from flow import Graph, Shrink
from graphs.engine_pools import engine_pools
from graphs.parts import Parts
from graphs.tool_pools import ToolPoolsConfig, with_tool_pools
from stages.agents.agent import sessions_of
from stages.agents.guards import TimeLimits
from stages.agents.sampling import SamplingConfig
from stages.episodes import Episodes
from stages.scores import Scores, check_pass_at
from stages.tasks.source import Tasks


class EvaluateConfig(ToolPoolsConfig):
    """Held-out evaluation."""

    num_tasks: int = Field(default=256, ge=1)
    """Held-out tasks."""
    attempts: int = Field(default=1, ge=1)
    """Episodes of each task."""
    pass_at: tuple[int, ...] = ()
    """Each k for which pass@k is told, the chance that one of k attempts is right; at most ``attempts``."""
    max_concurrency: int = Field(default=64, ge=1)
    """Episodes at once."""
    sampling: SamplingConfig = SamplingConfig()
    """Temperature and budgets. Its seed, where none is given, is the one after the run's, so not that of training."""
    limits: TimeLimits = TimeLimits()
    """Time limits of an episode."""

    @model_validator(mode="after")
    def _enough_attempts(self) -> Self:
        check_pass_at(self.pass_at, self.attempts)
        return self


def evaluate(config: EvaluateConfig, parts: Parts, scores: Scores, name: str = "evaluate") -> Graph:
    """Declare an evaluation.

    Args:
        config: see ``EvaluateConfig``.
        parts: policy, world and tasks.
        scores: counts the result.
        name: id of the graph in traces.
    """
    pools = engine_pools(parts.engine.config, sessions_of(parts.agent))
    sampling = config.sampling if config.sampling.seed is not None else config.sampling.model_copy(update={"seed": 1})
    graph = Graph(name, pools=with_tool_pools(pools.sizes, config, parts.tools, name), rates=config.rates)
    episode = Episodes(parts.engine, parts.chat, parts.agent, parts.make_env, sampling, config.limits, pools.turn)
    tasks = graph.source("tasks", Tasks(parts.heldout, sampling.seed, shuffle=False, epochs=1))
    attempts = graph.repeat("attempts", tasks, n=config.attempts)
    episodes = graph.stage("episodes", episode, workers=config.max_concurrency, needs=pools.episode)
    groups = graph.group("groups", episodes, missing=Shrink(min_members=0))
    rewards = graph.stage("rewards", parts.rewards())
    counted = graph.sink("scores", scores)
    tasks >> attempts >> episodes >> groups >> rewards >> counted
    graph.edge(episodes, groups, durable=True)
    return graph
