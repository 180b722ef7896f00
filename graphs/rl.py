"""Reinforcement learning of an agent with groups: GRPO as it stands, and what ``algorithms.py`` makes of it by its settings.

prompts >> members >> episodes >> groups >> rewards >> (models that are asked) >> advantages >> batches >> trainer
                         ^                                     ^                                              |
                         +-------------------------------------+------- weights, max_lag ---------------------+
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flow import Collect, Freshness, Graph, Inline, Node, Retry, Threads
from graphs.drawing import drawing
from graphs.engine_pools import engine_pools
from graphs.heldout import add_heldout, gated, pinned_evaluation
from graphs.parts import Parts
from graphs.rl_config import RlConfig
from graphs.scoring import Scoring, scoring
from graphs.tool_pools import with_tool_pools
from stages.advantages.stage import Advantages
from stages.agents.agent import sessions_of
from stages.batches.stage import Pack, PackConfig
from stages.episodes import Episodes
from stages.records import Batch, Group, Weights
from stages.rewards.functions import Function
from stages.rewards.overlong import SoftOverlong
from stages.train.bad_steps import bad_steps_of
from stages.train.gate import Gate
from stages.train.gated import Gated
from stages.train.retraced import Retraced
from stages.train.trainer import Trainer


def rl(config: RlConfig, parts: Parts, folder: Path | None = None, gate: Gate | None = None) -> Graph:
    """Declare training.

    Args:
        config: see ``RlConfig``.
        parts: policy, world and tasks.
        folder: of the run, for updates that were not applied and the best weights; ``None`` keeps none of the former, and the
            latter only as long as the graph runs.
        gate: judges the run, for whoever wants to read what it did; ``None`` makes one.
    """
    pools, asked = engine_pools(parts.engine.config, sessions_of(parts.agent)), scoring_of(config, parts)
    graph = Graph("rl", pools=with_tool_pools(pools.sizes, config, parts.tools, "rl"), rates=config.rates)
    episode = Episodes(parts.engine, parts.chat, parts.agent, parts.make_env, config.sampling, config.limits, pools.turn)
    learner = learner_of(config, parts, asked, folder, gate or Gate(config.gate))
    pinned = pinned_evaluation(config.heldout, parts, asked.load(parts.engine.load), config.steps, learner)
    drawn = drawing(config.draw, parts.train, config.seed or 0)
    weights = graph.latest("weights", Weights, load=drawn.load(pinned.swap))

    prompts = graph.source("prompts", drawn.source)
    members = graph.repeat("members", prompts, n=config.group_size)
    episodes = graph.stage("episodes", episode, workers=config.max_concurrency, needs=pools.episode, reads=weights)
    groups = graph.group("groups", episodes, missing=Retry(config.member_retries, then="drop"))
    rewards = graph.stage("rewards", parts.rewards(**penalty_of(config)))

    advantages, trainer = learning(graph, config, learner)

    drawn.before(graph, prompts, members)
    members >> episodes >> groups >> rewards
    scored = asked.after(graph, rewards, weights, durable=True)
    graph.edge(episodes, groups, durable=True)
    drawn.after(graph, scored, advantages)
    freshness = Freshness(config.max_lag, config.late)
    graph.feedback(trainer, weights, initial=lambda: learner.weights, freshness=freshness)
    add_heldout(graph, config, parts, pinned, learner, weights, pools)
    return graph


def learner_of(config: RlConfig, parts: Parts, asked: Scoring, folder: Path | None, gate: Gate) -> Gated:
    """The trainer behind its gate. Arguments as those of ``rl``, and the models that are asked."""
    trainer = Trainer(
        asked.model, config.loss, config.trainer, bad_steps_of(folder, config.trainer), temperature=config.sampling.temperature,
        whiten=config.advantages.whiten, follow=asked.follow, samples=parts.samples, hold=config.barrier == "batch",
    )  # fmt: skip
    return gated(trainer, gate, parts.model, folder)


def learning(graph: Graph, config: RlConfig, learner: Gated | Retraced) -> tuple[Node[Group, Group], Node[Batch, Any]]:
    """Declare what is behind the scored groups, of training and of its replay alike.

    Args:
        graph: gets the nodes.
        config: see ``RlConfig``.
        learner: trains.

    Returns:
        The first node, which takes groups with all that advantages and loss read, and the sink.
    """
    # Advantages of a critic run compiled code, whose first call takes seconds.
    apart = Threads() if config.advantages.needs_critic else Inline()
    advantages = graph.stage("advantages", Advantages(config.advantages), placement=apart)
    batches = graph.stage("batches", Pack(PackConfig(row_length=config.trainer.row_length), config.packed_needs))
    collect = Collect(config.groups_per_step, steps=config.steps)
    trainer = graph.sink("trainer", learner, collect=collect, placement=Threads())
    advantages >> batches >> trainer
    return advantages, trainer


def penalty_of(config: RlConfig) -> Mapping[str, tuple[Function, float]]:
    """What length costs, as a reward."""
    buffer = config.buffer_tokens
    return {} if buffer is None else {"length": (SoftOverlong(config.max_sampled, buffer), 1.0)}


def scoring_of(config: RlConfig, parts: Parts) -> Scoring:
    """The models that are asked about groups.

    Raises:
        ValueError: see ``scoring``.
    """
    return scoring(
        parts, reference=config.reference, teacher=config.teacher, critic=config.critic,
        temperature=config.sampling.temperature, group_size=config.group_size, row_length=config.trainer.row_length,
        row_lengths=config.trainer.row_lengths,
    )  # fmt: skip
