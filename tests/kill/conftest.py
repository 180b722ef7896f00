"""Real processes that are killed; what they are made of is in ``importable``, and in ``graphs/bench/recovery``."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flow.testing import Process, Start, processes

IMPORTABLE = Path(__file__).with_name("importable")
ROOT = str(Path(__file__).parents[2])

sys.path.insert(0, str(IMPORTABLE))

pytest.register_assert_rewrite("equal_lives")


RUN = (
    "run", "counted", "--options.name", "it", "--options.resume", "auto", "--options.checkpoint-every", "3",
    "--options.keep", "8",
)  # fmt: skip
"""What a scheduler that restarts jobs would call each time."""


@pytest.fixture(scope="session")
def start() -> Iterator[Start]:
    """Starts a training that goes on from its latest commit, or whatever else ``headrace`` can do."""
    with processes([str(IMPORTABLE / "calculator_child.py")], RUN, PYTHONPATH=ROOT) as start:
        yield start


@pytest.fixture(scope="session")
def start_summing() -> Iterator[Start]:
    """Starts a run of flow alone, which goes on from its latest commit; arguments as of ``summing_child``."""
    with processes([str(IMPORTABLE / "summing_child.py")], ("1", "0"), PYTHONPATH=ROOT) as start:
        yield start


@pytest.fixture(scope="session")
def unkilled(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Process:
    """A training that was never killed, at its end."""
    life = start(tmp_path_factory.mktemp("never-killed"))
    assert life.wait() == 0, life.output
    return life


@pytest.fixture(scope="session")
def unkilled_summing(start_summing: Start, tmp_path_factory: pytest.TempPathFactory) -> Process:
    """A run of flow alone that was never killed, at its end."""
    life = start_summing(tmp_path_factory.mktemp("never-killed-summing"))
    assert life.wait() == 0, life.output
    return life
