"""Evaluation during training: a branch of the training graph, pinned to one version, beside the line that trains.

weights => versions >> heldout_tasks >> heldout_attempts >> heldout_episodes >> heldout_groups >> heldout_rewards
        >> heldout_scores

It uses the engine that training samples from, and holds the next swap of weights until it is done; see docs/evaluation.md.
"""

import math
from pathlib import Path

from flax import nnx

from flow import Cell, Collect, Freshness, Graph, Shrink
from graphs.engine_pools import EnginePools
from graphs.fitting import check_heldout
from graphs.heldout_config import HeldoutConfig
from graphs.parts import Parts
from graphs.rl_config import RlConfig
from stages.checkpoint.best import BestWeights
from stages.checkpoint.store import BEST
from stages.episodes import Episodes
from stages.evaluation.branch import HeldoutRow, HeldoutTasks, PinnedEpisodes, PinnedScores
from stages.evaluation.pinned import Evaluation, PinnedEvaluation
from stages.records import LoadWeights, Weights
from stages.scores import Score, Scores
from stages.train.gate import Gate
from stages.train.gated import Gated
from stages.train.trainer import Trainer


def pinned_evaluation(config: HeldoutConfig, parts: Parts, load: LoadWeights, last: int, learner: Gated) -> PinnedEvaluation:
    """What loads the weights of a training graph.

    Args:
        config: see ``HeldoutConfig``.
        parts: policy, world and tasks.
        load: puts weights in force.
        last: version that training ends with.
        learner: makes the weights.
    """
    like = lambda: learner.weights  # noqa: E731 - as they are when they are asked for
    return PinnedEvaluation(load, every=config.every, last=last, first=config.first, deadline_s=config.deadline_s, like=like)


def gated(trainer: Trainer, gate: Gate, model: nnx.Module, folder: Path | None) -> Gated:
    """The trainer behind its gate.

    Args:
        trainer: trains.
        gate: judges.
        model: what is trained.
        folder: of the run, where the best weights are kept; ``None`` keeps them only as long as the graph runs.
    """
    return Gated(trainer, gate, model, BestWeights(None if folder is None else folder / BEST))


def add_heldout(
    graph: Graph,
    config: RlConfig,
    parts: Parts,
    pinned: PinnedEvaluation,
    trainer: Gated,
    weights: Cell[Weights],
    pools: EnginePools,
) -> None:
    """Declare the branch; nothing where nothing is evaluated.

    Args:
        graph: of training.
        config: of training.
        parts: policy, world and tasks.
        pinned: loads the weights of the cell.
        trainer: is told of each score.
        weights: cell whose versions are evaluated.
        pools: what episodes hold of the engine.

    Raises:
        ValueError: the quota leaves training nothing of the engine, or a gate compares evaluations and there are none.
    """
    wanted = config.heldout
    check_heldout(wanted, pools, trainer.gate.config)
    if wanted.every is None:
        return
    tasks, asked = parts.heldout[: wanted.num_tasks], wanted.sampling(config.sampling)
    episode = Episodes(
        parts.engine, parts.chat, parts.agent, parts.make_env, asked, config.limits, pools.turn, cycle=len(tasks)
    )  # fmt: skip
    counts = Scores(len(tasks), wanted.attempts, wanted.pass_at)

    async def on_score(score: Score | None, evaluation: Evaluation, row: HeldoutRow) -> None:
        if score is not None:
            await trainer.see_heldout(evaluation.weights, row)

    versions = graph.versions("versions", weights)
    questions = graph.stage("heldout_tasks", HeldoutTasks(pinned, tasks))
    attempts = graph.repeat("heldout_attempts", questions, n=wanted.attempts)
    episodes = graph.stage(
        "heldout_episodes", PinnedEpisodes(pinned, episode), reads=weights, needs=pools.episode, budget=None,
        workers=min(wanted.max_concurrency, len(tasks) * wanted.attempts),
        deadline_s=None if wanted.deadline_s is None else math.inf,  # an evaluation has one, and so has all in it
    )  # fmt: skip
    groups = graph.group("heldout_groups", episodes, missing=Shrink(min_members=0))
    rewards = graph.stage("heldout_rewards", parts.rewards())
    collect = Collect(len(tasks), steps=pinned.most)
    scores = graph.sink("heldout_scores", PinnedScores(pinned, counts, on_score), collect=collect)
    versions >> questions >> attempts >> episodes >> groups >> rewards >> scores
    graph.edge(episodes, groups, durable=True)
    # One evaluation at a time, counted in the order of its tasks.
    graph.feedback(scores, graph.latest("heldout", Score), freshness=Freshness(0))
