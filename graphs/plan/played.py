"""Plays a training graph in virtual time: the declared graph, the engine's scheduler, the trainer's packing, measured times.

What works on a device or waits for the world is replaced by what takes as long; everything else is the graph as it would run:
tickets, lag, barrier, edges, pools, slots, prefill steps, micro-batches.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from flow import Inline, Plan
from flow.testing import simulate
from graphs.engine_pools import engine_pools
from graphs.heldout_config import HeldoutConfig
from graphs.parts import Parts
from graphs.plan.played_engine import PlayedEngine
from graphs.plan.played_stages import PlayedEpisodes, PlayedRewards, PlayedScores, PlayedTrainer
from graphs.plan.shares import Shares, Thread
from graphs.plan.times import Times
from graphs.rl import rl
from graphs.rl_config import RlConfig
from stages.agents.agent import sessions_of
from stages.records import Weights
from stages.train.gate import GateConfig


@dataclass(frozen=True)
class Predicted:
    """A run as it would be.

    Attributes:
        ends_s: seconds from the beginning to the end of each step.
        groups: that were trained.
        trainer_idle: share of the time in which the trainer did nothing.
        engine_busy: share of the time in which the engine made steps.
        microbatches: of a step, on average.
    """

    ends_s: Sequence[float]
    groups: int
    trainer_idle: float
    engine_busy: float
    microbatches: float

    @property
    def groups_per_minute(self) -> float:
        """From the beginning to the end of the last step."""
        return 60.0 * self.groups / self.ends_s[-1]


def without_evaluation(config: RlConfig, **changes: object) -> RlConfig:
    """The settings of a graph that only trains: without evaluations, and the gate that reads them."""
    return config.model_copy(update={"heldout": HeldoutConfig(), "gate": GateConfig(), **changes})


def predicted(config: RlConfig, parts: Parts, times: Times, seed: int = 0) -> Predicted:
    """What training with these settings would come to. It runs an event loop of its own, so it is called from outside of any.

    Args:
        config: of the training; a step of it takes as many groups as when the times were measured, with as many members.
        parts: of its program.
        times: measured.
        seed: of the order of what happens at the same time.

    Raises:
        LookupError: the times of micro-batches of so many rows were not measured.
    """
    config = without_evaluation(config)
    host = Shares(times.processors)
    device = host if times.shared else Shares(1.0)
    engine = PlayedEngine(parts.engine.config, times.engine, device)
    trainer = _trainer(config, times, Shares(1.0) if times.apart and not times.shared else device)
    simulate(_plan(config, parts, times, engine, trainer, host), seed)
    run_s = trainer.ends_s[-1]
    return Predicted(
        ends_s=trainer.ends_s,
        groups=trainer.groups,
        trainer_idle=1.0 - trainer.busy_s / run_s,
        engine_busy=engine.busy_s / run_s,
        microbatches=trainer.microbatches / len(trainer.ends_s),
    )


def _trainer(config: RlConfig, times: Times, device: Shares) -> PlayedTrainer:
    rows = config.trainer.rows_per_microbatch
    if rows not in times.trainer:
        known = ", ".join(map(str, times.trainer))
        raise LookupError(f"expected micro-batches of {known} rows, which were measured; got {rows}; measure that too")
    return PlayedTrainer(
        config.trainer, config.loss, times.trainer[rows], device, whiten=config.advantages.whiten,
        hold=config.barrier == "batch",
    )  # fmt: skip


def _plan(config: RlConfig, parts: Parts, times: Times, engine: PlayedEngine, trainer: PlayedTrainer, host: Shares) -> Plan:
    graph = rl(config, replace(parts, engine=engine))  # type: ignore[arg-type]
    turns = engine_pools(engine.config, sessions_of(parts.agent)).turn
    graph = graph.replace("episodes", PlayedEpisodes(times, engine, turns, Thread(host)))
    graph = graph.replace("rewards", PlayedRewards(max(0.0, times.nodes_s["rewards"] - times.late_s)))
    for name in ("reference", "teacher", "values"):
        if name in graph.spec().nodes:
            graph = graph.replace(name, PlayedScores(times.nodes_s[name])).with_(name, placement=Inline())
    graph = graph.replace("trainer", trainer).with_("trainer", placement=Inline()).with_("advantages", placement=Inline())
    plan = graph.build(quiet=True)
    feedback = tuple(replace(each, initial=Weights(None)) for each in plan.spec.feedback)
    return replace(plan, spec=replace(plan.spec, feedback=feedback))
