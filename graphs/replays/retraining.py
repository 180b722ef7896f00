"""Reinforcement learning again on what a run recorded: no environments, no engine, and the very stages that trained.

recorded >> advantages >> batches >> trainer
"""

from collections.abc import Sequence

from flow import Graph
from flow.saving import RecordedStep, RecordedSteps
from graphs.parts import Parts
from graphs.replays.recorded import RecordedGroups
from graphs.rl import learner_of, learning, scoring_of
from graphs.rl_config import RlConfig
from stages.train.gate import Gate, GateConfig
from stages.train.gated import Gated
from stages.train.retraced import Retraced


def trainer_again(config: RlConfig, parts: Parts) -> Gated:
    """The trainer of a run, behind a gate that lets everything pass: what it stopped was not trained, and is not recorded."""
    return learner_of(config, parts, scoring_of(config, parts), None, Gate(GateConfig()))


def retraining(config: RlConfig, recorded: RecordedSteps, steps: Sequence[RecordedStep], learner: Retraced) -> Graph:
    """Declare the replay of steps.

    Args:
        config: of the run.
        recorded: what it recorded.
        steps: consecutive ones of it.
        learner: trains; as it was before the first of them.
    """
    graph = Graph("rl")
    groups = graph.source("recorded", RecordedGroups(recorded, steps, learner.expect))
    advantages, _ = learning(graph, config.model_copy(update={"steps": len(steps)}), learner)
    groups >> advantages
    return graph


def scored_by(config: RlConfig, parts: Parts) -> str:
    """Name of the node whose groups are recorded: the last before the advantages."""
    return ["rewards", *scoring_of(config, parts).stages][-1]
