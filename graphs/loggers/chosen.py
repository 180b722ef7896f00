"""From the names of loggers to loggers, and the refusal of one whose package is not installed."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from graphs.loggers.logger import Logger, Told
from graphs.loggers.otel import open_otel
from graphs.loggers.tensorboard import open_tensorboard
from graphs.loggers.wandb import open_wandb
from stages.packages import optional_package

LoggerName = Literal["tensorboard", "wandb", "otel"]
_NEEDS: dict[LoggerName, Sequence[str]] = {
    "tensorboard": ("tensorboardX",),
    "wandb": ("wandb",),
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
}
_OPEN: dict[LoggerName, Callable[[Told], Logger]] = {
    "tensorboard": open_tensorboard,
    "wandb": open_wandb,
    "otel": open_otel,
}


def check_loggers(names: Sequence[LoggerName]) -> None:
    """Refuse a logger whose package is missing.

    Raises:
        MissingPackageError: naming the extra that brings it.
    """
    for name in names:
        for module in _NEEDS[name]:
            optional_package(module, name, f"--options.loggers {name}")


def maker(name: LoggerName, told: Told) -> Callable[[], Logger]:
    """What opens a logger."""
    return partial(_OPEN[name], told)
