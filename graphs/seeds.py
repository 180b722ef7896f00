"""The seed of a run: every part's seed that is not given follows from it, in one place.

A program has one ``seed``. Below it, in sections, each chance has a ``seed`` of its own, ``None`` until it is given: first
parameters and adapters, the order of the tasks, what is sampled, the order of minibatches, evaluations. So a run is varied by
one number, and one part of it by another: ``--rl.seed`` alone gives the same tasks in another order.
"""

from typing import Any, TypeVar

from pydantic import BaseModel

from graphs.evaluate import EvaluateConfig
from graphs.heldout_config import HeldoutConfig

Settings = TypeVar("Settings", bound=BaseModel)
_EVALUATIONS = (EvaluateConfig, HeldoutConfig)
_SEEDS = 2**31


def seeded(config: Settings) -> Settings:
    """The settings of a program with a number for every seed that was left open.

    It is that of the program; in evaluations the next one, so that they draw other numbers than training does.

    Args:
        config: with a ``seed`` that is a number.
    """
    return _filled(config, int(vars(config)["seed"]))


def _filled(config: Any, seed: int) -> Any:
    changes: dict[str, Any] = {}
    for name in type(config).model_fields:
        value = getattr(config, name)
        if name == "seed" and value is None:
            changes[name] = seed
        elif isinstance(value, BaseModel):
            filled = _filled(value, (seed + 1) % _SEEDS if isinstance(value, _EVALUATIONS) else seed)
            changes |= {} if filled is value else {name: filled}
    return config.model_copy(update=changes) if changes else config
