"""Loggers by name, and the refusal of those whose package is not there."""

import sys

import pytest

from graphs.loggers.chosen import check_loggers
from stages.packages import MissingPackageError


def test_every_missing_package_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("tensorboardX", "wandb", "opentelemetry.sdk"):
        monkeypatch.setitem(sys.modules, module, None)  # as Python has a module that must not be imported
    with pytest.raises(MissingPackageError) as caught:
        check_loggers(("wandb", "otel", "tensorboard", "wandb"))
    told = str(caught.value).splitlines()
    assert [line.partition("pip install ")[2] for line in told] == [
        "'headrace[wandb]'", "'headrace[otel]'", "'headrace[tensorboard]'",
    ]  # fmt: skip
