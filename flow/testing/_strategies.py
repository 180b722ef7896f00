"""Hypothesis strategies: random graphs that shrink. Hypothesis is needed here only, so it is imported on use."""

from typing import TYPE_CHECKING

from ._drawing import random_graph
from ._graphs import RandomGraph

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


def graphs(*, tasks: int = 6, training: bool | None = None) -> "SearchStrategy[RandomGraph]":
    """Draw whole graphs: lines, groups, feedback with freshness, pools, orders, retries, drops, several outputs.

    Args:
        tasks: items of the source; graphs with training have twenty times as many, since they end after four steps.
        training: with feedback or without; ``None`` for both.

    Raises:
        ModuleNotFoundError: Hypothesis is not installed.
    """
    from hypothesis import strategies as st

    # A composite, since a report shows what it gave and not what went into it.
    @st.composite
    def drawn(draw: st.DrawFn) -> RandomGraph:
        trains = draw(st.booleans()) if training is None else training
        rnd = draw(st.randoms(use_true_random=False))
        return random_graph(rnd, tasks=20 * tasks if trains else tasks, training=trains)

    return drawn()
