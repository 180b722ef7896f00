"""Which settings of a training are tried on paper, what each would come to, and which of them is enough for a target."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphs.bench.experiment import Tell
from graphs.parts import Parts
from graphs.plan.played import Predicted, predicted
from graphs.plan.times import Times
from graphs.rl_config import RlConfig

STEPS = 3
"""Of a run on paper that count. Before them as many more are trained as may be under way at once, and behind them too: a run
begins with nothing on its way, and opens nothing more when it ends."""
_LAGS = (0, 1, 2)
_TIMES = (0.25, 0.5, 1, 2)
"""What ``max_concurrency`` is multiplied by."""


@dataclass(frozen=True)
class Choice:
    """Settings that may be chosen.

    Attributes:
        config: of the training.
        predicted: what it would come to.
        gradient_bytes: that a micro-batch works in, beside weights and optimizer; ``None`` where the platform does not say.
        current: whether these are the settings that were asked about.
    """

    config: RlConfig
    predicted: Predicted
    gradient_bytes: int | None
    current: bool

    @property
    def groups_per_minute(self) -> float:
        """Once it is under way."""
        return self.steps_per_minute * self.config.groups_per_step

    @property
    def steps_per_minute(self) -> float:
        """Once it is under way."""
        begin, end = (self.predicted.ends_s[at] for at in (self.config.max_lag, -1 - self.config.max_lag))
        return 60.0 * STEPS / (end - begin)

    @property
    def cost(self) -> tuple[int, int, int]:
        """What it costs: staleness first, which changes what is learned; then episodes at once; then rows of a micro-batch."""
        return self.config.max_lag, self.config.max_concurrency, self.config.trainer.rows_per_microbatch

    def arguments(self, prefix: str = "rl") -> Sequence[str]:
        """The settings as they are typed."""
        pools = [part for name, units in self.config.pools.items() for part in (name, str(units))]
        return [
            f"--{prefix}.max-concurrency", str(self.config.max_concurrency), f"--{prefix}.max-lag", str(self.config.max_lag),
            f"--{prefix}.trainer.rows-per-microbatch", str(self.config.trainer.rows_per_microbatch),
            *([f"--{prefix}.pools", *pools] if pools else []),
        ]  # fmt: skip


def choices(config: RlConfig, parts: Parts, times: Times, tell: Tell = lambda done, total, what: None) -> list[Choice]:
    """What settings near those of a training would come to, the cheapest first.

    Args:
        config: of the training.
        parts: of its program.
        times: measured.
        tell: hears how far it is.
    """
    tried = list(_near(config, times))
    found: list[Choice] = []
    for number, each in enumerate(tried):
        tell(number, len(tried), told(each))
        played = each.model_copy(update={"steps": STEPS + 1 + 2 * each.max_lag})
        bytes_of = times.trainer[each.trainer.rows_per_microbatch].gradient_bytes
        found.append(Choice(each, predicted(played, parts, times), bytes_of, each == config))
    return sorted(found, key=lambda choice: choice.cost)


def enough(found: Sequence[Choice], groups_per_minute: float) -> Choice | None:
    """The cheapest that trains so many groups a minute; ``None`` where none does.

    Args:
        found: the cheapest first.
        groups_per_minute: at least.
    """
    return next((choice for choice in found if choice.groups_per_minute >= groups_per_minute), None)


def told(config: RlConfig) -> str:
    """The settings in a line."""
    pools = "".join(f", pool {name} {units}" for name, units in config.pools.items())
    return (
        f"max_concurrency {config.max_concurrency}, max_lag {config.max_lag}, "
        f"{config.trainer.rows_per_microbatch} rows in a micro-batch{pools}"
    )


def row_sizes(config: RlConfig) -> Sequence[int]:
    """Rows of micro-batches that are worth a measurement: as they are, half and twice as many."""
    rows = config.trainer.rows_per_microbatch
    return sorted({max(1, rows // 2), rows, 2 * rows})


def _near(config: RlConfig, times: Times) -> Iterator[RlConfig]:
    """As it is; episodes at once by staleness; then each of the rest by staleness, with all else as it is."""
    most = config.groups_per_step * config.group_size
    lags = (0,) if config.barrier == "batch" else sorted({*_LAGS, config.max_lag})
    tried: list[RlConfig] = []
    for lag in lags:
        # More at once than there are tickets for is no other choice.
        at_once = {min(max(1, round(share * config.max_concurrency)), most * (lag + 1)) for share in _TIMES}
        changes: list[Mapping[str, Any]] = [
            *({"max_concurrency": each} for each in sorted(at_once)),
            *({"trainer": _with_rows(config, rows)} for rows in sorted(times.trainer)),
            *({"pools": {**config.pools, name: 2 * units}} for name, units in config.pools.items()),
        ]
        tried += [config.model_copy(update={"max_lag": lag, **change}) for change in changes]
    yield config
    for place, each in enumerate(tried):
        if each != config and each not in tried[:place]:
            yield each


def _with_rows(config: RlConfig, rows: int) -> Any:
    return config.trainer.model_copy(update={"rows_per_microbatch": rows})
