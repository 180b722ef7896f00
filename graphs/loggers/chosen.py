"""From the names of loggers to loggers, and the refusal of one whose package is not installed."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from graphs.loggers.logger import Logger, Told
from graphs.loggers.otel import open_otel
from graphs.loggers.tensorboard import open_tensorboard
from graphs.loggers.wandb import open_wandb
from stages.packages import MissingPackageError, optional_package

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
    """Refuse loggers whose package is missing.

    Raises:
        MissingPackageError: naming for each the extra that brings it.
    """
    faults: list[str] = []
    for name in dict.fromkeys(names):
        try:
            for module in _NEEDS[name]:
                optional_package(module, name, f"--options.loggers {name}")
        except MissingPackageError as error:
            faults.append(str(error))
    if faults:
        raise MissingPackageError("\n".join(faults))


def maker(name: LoggerName, told: Told) -> Callable[[], Logger]:
    """What opens a logger."""
    return partial(_OPEN[name], told)
