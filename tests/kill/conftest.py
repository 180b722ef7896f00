"""Real processes that are killed; what they are made of is in ``importable``."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).with_name("importable")))

pytest.register_assert_rewrite("equal_lives")

from lives import Life, Start, lives  # noqa: E402 - after the rewriting was asked for

RUN = (
    "run", "counted", "--options.name", "it", "--options.resume", "auto", "--options.checkpoint-every", "3",
    "--options.keep", "8",
)  # fmt: skip
"""What a scheduler that restarts jobs would call each time."""


@pytest.fixture(scope="session")
def start() -> Iterator[Start]:
    """Starts a training that goes on from its latest commit, or whatever else ``headrace`` can do."""
    with lives("calculator_child.py", RUN) as start:
        yield start


@pytest.fixture(scope="session")
def start_summing() -> Iterator[Start]:
    """Starts a run of flow alone, which goes on from its latest commit; arguments as of ``summing_child``."""
    with lives("summing_child.py", ("1", "0")) as start:
        yield start


@pytest.fixture(scope="session")
def unkilled(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Life:
    """A training that was never killed, at its end."""
    life = start(tmp_path_factory.mktemp("never-killed"))
    assert life.wait() == 0, life.output
    return life


@pytest.fixture(scope="session")
def unkilled_summing(start_summing: Start, tmp_path_factory: pytest.TempPathFactory) -> Life:
    """A run of flow alone that was never killed, at its end."""
    life = start_summing(tmp_path_factory.mktemp("never-killed-summing"))
    assert life.wait() == 0, life.output
    return life
