"""The gate of a run: tolerances for what its rows of metrics say, and what follows when one is left.

``GateConfig`` holds the tolerances; ``breach`` and ``fall`` decide, over rows and nothing else; ``Gate`` remembers the
last rows and the best evaluation, and acts. Where rows come from, and what is done with the best weights, is in ``gated.py``.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from stages.train.stop import StopRun

MetricsRow = Mapping[str, Any]
_NAMED = ("reward_mean", "reward_std", "lag_max", "kl", "entropy")
_LOOKED_AT = ("step", "num_episodes", "episodes_truncated_length", "episodes_truncated_turns", *_NAMED)


class GateConfig(BaseModel):
    """Tolerances of a run. Without any of them, and with ``stop``, there is no gate."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    action: Literal["stop", "keep_best"] = "stop"
    """What follows a breach. ``stop``: the run ends, and says why. ``keep_best``: training goes on, and at its end the weights
    of the best evaluation are what the model has, what ``eval``, ``export`` and ``chat`` load, whatever came later."""
    heldout_drop: float | None = Field(default=None, ge=0, le=1)
    """Most that the held-out success may fall below the best evaluation so far; ``None`` for any."""
    heldout_interval: bool = False
    """Whether the held-out success must stay above the lower end of the interval of the best evaluation so far."""
    reward_min: float | None = None
    """Least mean reward of a step; ``None`` for any. This and what follows must be left for ``patience`` steps in a row."""
    reward_max: float | None = None
    """Most mean reward of a step, for rewards that can be cheated; ``None`` for any."""
    reward_std_min: float | None = Field(default=None, ge=0)
    """Least deviation of the rewards of a step: below it groups have no signal; ``None`` for any."""
    truncated_max: float | None = Field(default=None, ge=0, le=1)
    """Most share of a step's episodes that were cut by a budget of tokens or turns; ``None`` for any."""
    lag_max: int | None = Field(default=None, ge=0)
    """Most versions between dispatch and training, of any group of a step; ``None`` for any."""
    kl_max: float | None = Field(default=None, ge=0)
    """Most mean ``kl`` of a step, where the loss measures it; ``None`` for any."""
    entropy_min: float | None = Field(default=None, ge=0)
    """Least mean ``entropy`` of a step, where the loss measures it; ``None`` for any."""
    patience: int = Field(default=3, ge=1)
    """Steps in a row for which a figure must be out of its tolerance. Evaluations are not waited for: one is enough."""

    @property
    def needs_heldout(self) -> bool:
        """Whether it compares evaluations."""
        return self.action == "keep_best" or self.heldout_drop is not None or self.heldout_interval


@dataclass(frozen=True)
class Breach:
    """A figure out of its tolerance.

    Attributes:
        figure: its name in the row.
        value: what it was.
        setting: the tolerance, as a setting.
        bound: what was allowed: "at least 0.2".
        at: the step, or the version that was evaluated.
    """

    figure: str
    value: float
    setting: str
    bound: str
    at: int


class GateClosed(StopRun):
    """A tolerance was left, and the gate stops the run."""


class GateState(msgspec.Struct, frozen=True):
    """What a gate remembers, see ``Gate``.

    Attributes:
        best: the row of the best evaluation.
        breaches: the first breach of each tolerance.
        rows: of the last steps, oldest first, what of them is looked at.
    """

    best: dict[str, Any] | None
    breaches: dict[str, Breach]
    rows: tuple[dict[str, Any], ...]


def figures(row: MetricsRow) -> dict[str, float | None]:
    """The figures of a step that have a tolerance; ``None`` for what was not measured."""
    episodes = row.get("num_episodes")
    cut = (row.get("episodes_truncated_length") or 0) + (row.get("episodes_truncated_turns") or 0)
    return {**{name: row.get(name) for name in _NAMED}, "truncated": cut / episodes if episodes else None}


def breach(rows: Sequence[MetricsRow], config: GateConfig) -> Breach | None:
    """What is out of its tolerance in every one of the last ``patience`` steps; ``None`` for nothing, or too few steps.

    A step in which a figure was not measured is none in which it was out. So is NaN, which compares with nothing: what is not
    finite is for the trainer to refuse.
    """
    if len(rows) < config.patience:
        return None
    recent = [figures(row) for row in rows[-config.patience :]]
    bounds: list[tuple[str, str, float | None, bool]] = [
        ("reward_mean", "reward_min", config.reward_min, True),
        ("reward_mean", "reward_max", config.reward_max, False),
        ("reward_std", "reward_std_min", config.reward_std_min, True),
        ("truncated", "truncated_max", config.truncated_max, False),
        ("lag_max", "lag_max", config.lag_max, False),
        ("kl", "kl_max", config.kl_max, False),
        ("entropy", "entropy_min", config.entropy_min, True),
    ]
    for figure, setting, bound, least in bounds:
        values = [row[figure] for row in recent]
        if bound is not None and all(value is not None and (value < bound if least else value > bound) for value in values):
            text = f"at {'least' if least else 'most'} {bound:g}"
            return Breach(figure, float(values[-1] or 0.0), f"gate.{setting}", text, int(rows[-1]["step"]))
    return None


def fall(best: MetricsRow | None, row: MetricsRow, config: GateConfig) -> Breach | None:
    """How far an evaluation is below the best one, where that is too far.

    Args:
        best: the row of the best evaluation before; ``None`` for none.
        row: the one to judge; it measured something.
        config: tolerances.
    """
    if best is None:
        return None
    score, at = float(row["heldout"]), int(row["version"])
    if config.heldout_drop is not None and score < best["heldout"] - config.heldout_drop:
        text = f"at least {best['heldout'] - config.heldout_drop:.4g}, {config.heldout_drop:g} below version {best['version']}"
        return Breach("heldout", score, "gate.heldout_drop", text, at)
    if config.heldout_interval and score < best["heldout_low"]:
        text = f"at least {best['heldout_low']:.4g}, the lower end of the interval of version {best['version']}"
        return Breach("heldout", score, "gate.heldout_interval", text, at)
    return None


class Gate:
    """Judges the rows of one run. Rows of steps and of evaluations may come from different threads, each in their order.

    Args:
        config: tolerances and action.

    Attributes:
        best: the row of the best evaluation; of several equal ones the last. ``None`` before one has measured something.
        breaches: the first breach of each tolerance.
    """

    def __init__(self, config: GateConfig) -> None:
        self.config = config
        self.best: MetricsRow | None = None
        self.breaches: dict[str, Breach] = {}
        self._rows: deque[MetricsRow] = deque(maxlen=config.patience)

    def see_step(self, row: MetricsRow) -> None:
        """Judge a step.

        Raises:
            GateClosed: it broke a tolerance, and the action is ``stop``.
        """
        self._rows.append({name: row.get(name) for name in _LOOKED_AT})
        self._follow(breach(list(self._rows), self.config))

    def is_best(self, row: MetricsRow) -> bool:
        """Whether an evaluation that measured something is the best so far."""
        return self.best is None or float(row["heldout"]) >= float(self.best["heldout"])

    def see_heldout(self, row: MetricsRow) -> None:
        """Take in an evaluation that measured something, and judge it against the best one. The same again changes nothing.

        Raises:
            GateClosed: it fell too far, and the action is ``stop``.
        """
        if self.is_best(row):
            self.best = row
        self._follow(fall(self.best, row, self.config))

    def state(self) -> GateState:
        """What it remembers."""
        return GateState(None if self.best is None else dict(self.best), dict(self.breaches), tuple(map(dict, self._rows)))

    def restore(self, state: GateState) -> None:
        """Go on with what one remembered; of more steps than are looked at here, the last count."""
        self.best, self.breaches = state.best, dict(state.breaches)
        self._rows = deque(state.rows, maxlen=self.config.patience)

    def report(self) -> dict[str, Any]:
        """What it did, for the summary."""
        best = None if self.best is None else {name: self.best[name] for name in ("version", "heldout", "heldout_low")}
        told = {setting: f"{_text(each)}" for setting, each in self.breaches.items()}
        return {"action": self.config.action, "breaches": told, "best": best}

    def _follow(self, found: Breach | None) -> None:
        if found is None:
            return
        self.breaches.setdefault(found.setting, found)
        if self.config.action == "stop":
            best = "" if self.best is None else f"; the best weights are those of version {self.best['version']}"
            raise GateClosed(
                f"expected {found.figure} of {found.bound} ({found.setting}); got {_text(found)}{best}; look at metrics.jsonl "
                f"for what changed, or widen {found.setting}"
            )


def _text(found: Breach) -> str:
    where = "in the evaluation of version" if found.figure == "heldout" else "at step"
    return f"{found.value:.4g} {where} {found.at}"
