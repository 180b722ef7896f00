"""What the tests of ``build`` share. What stands in ``importable`` is on their path, and on that of processes they start.

What stands in ``checks`` is on the path of tests: machines and models that several of them use.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from flow import BuildError, Graph

sys.path[:0] = [str(Path(__file__).with_name(folder)) for folder in ("importable", "checks")]

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def refusal() -> Callable[[Graph], BuildError]:
    """Gives the error of building a graph. Every fault of it has four parts."""

    def build(graph: Graph) -> BuildError:
        with pytest.raises(BuildError) as caught:
            graph.build()
        for fault in caught.value.faults:
            assert all((fault.rule, fault.path, fault.expected, fault.got, fault.remedy))
            assert fault.path.startswith(graph.name)
            assert re.fullmatch(r"test_\w+\.py:\d+", fault.where)
        return caught.value

    return build


@pytest.fixture
def is_refused_as_written(refusal: Callable[[Graph], BuildError]) -> Callable[[Callable[[], Graph]], None]:
    """Compares the text of a refusal with the golden file of the function that makes the graph."""

    def compare(make: Callable[[], Graph]) -> None:
        # Line numbers of the test's file would change with every line above.
        text = re.sub(r"(test_\w+\.py):\d+", r"\1:N", str(refusal(make())))
        assert text + "\n" == (GOLDEN / f"build_{make.__name__}.txt").read_text()

    return compare
