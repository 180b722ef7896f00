"""The report of a stage that breaks its contract."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st

from flow.testing import check_stage


class Report(str):
    """The text of a report."""

    @property
    def clause(self) -> str:
        """The clause it names."""
        return self.splitlines()[0].split(": ")[1].split("  ")[0]


@pytest.fixture
def report() -> Callable[..., Report]:
    """Checks a stage that is broken, by default with small numbers, and gives the report."""

    def check(stage: Any, inputs: Any = None, **settings: Any) -> Report:
        with pytest.raises(AssertionError) as caught:
            check_stage(stage, st.integers(0, 5) if inputs is None else inputs, examples=20, **settings)
        return Report(caught.value)

    return check
