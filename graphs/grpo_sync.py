"""The synchronous baseline: the graph of ``rl.py`` behind a barrier over the whole batch. To compare with.

prompts >> members >> episodes >> groups >> rewards >> advantages >> batches >> (all of the step) >> trainer
              ^                                                                                         |
              +------------- nothing of the next step before these weights are in force ----------------+

The same stages with two settings, so ``headrace run NAME --rl.barrier batch`` runs it too. Numbers are those of ``max_lag=0``.
"""

from pathlib import Path

from flow import Graph
from graphs.algorithms import changed
from graphs.parts import Parts
from graphs.rl import rl
from graphs.rl_config import RlConfig
from stages.train.gate import Gate


def synchronous(config: RlConfig) -> RlConfig:
    """The same settings on the schedule of the baseline."""
    return changed(config, max_lag=0, barrier="batch")


def grpo_sync(config: RlConfig, parts: Parts, folder: Path | None = None, gate: Gate | None = None) -> Graph:
    """Declare training in which all episodes of a step end before any of it is trained. Arguments as those of ``rl``."""
    return rl(synchronous(config), parts, folder, gate)
