"""The same run of a trainer on one device and spread over eight: streamed, and going over each step several times."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow  # One process that compiles some twenty programs.


@pytest.fixture(scope="module")
def found(on_eight_devices: Callable[[Path], Any]) -> dict[str, Any]:
    return on_eight_devices(Path(__file__).with_name("eight_device_runs.py"))


WHOLE = ["(1, 8, 1)", "(2, 2, 2)"]


@pytest.mark.parametrize(
    ("mode", "updates", "shape"), [("streamed", 1, "(2, 2, 2)"), *(("whole", 4, shape) for shape in WHOLE)]
)
def test_losses_of_a_run_are_those_of_one_device(found, mode, updates, shape):
    """Three steps; whole ones have two passes of two minibatches, whitened, against an old policy."""
    run = found[mode]
    assert run["updates"] == run[shape]["updates"] == [updates] * 3
    assert len({round(loss, 3) for loss in run["losses"]}) == 3
    for name in ("loss", "grad_norm", "entropy", "parameters"):
        assert run[shape][name] < 1e-4, name


@pytest.mark.parametrize(("shape", "share"), list(zip(WHOLE, (1 / 8, 1 / 4), strict=True)))
def test_the_optimizer_state_is_spread_as_the_parameters_are(found, shape, share):
    """In the host's memory too; norms are whole everywhere, hence the slack."""
    assert share <= found["whole"][shape]["share"] < share + 0.03
    assert found["whole"][shape]["memory"] == (["pinned_host"] if shape == "(2, 2, 2)" else ["device"])
    assert found["streamed"]["(2, 2, 2)"]["memory"] == ["device"]
