"""A proven graph, ready to run."""

from collections.abc import Mapping
from dataclasses import dataclass

from ._limits import Capacity
from ._spec import Spec


@dataclass(frozen=True)
class Plan:
    """What ``Graph.build`` gives and ``Run`` executes.

    Attributes:
        spec: the declared graph.
        capacities: bound of every edge by its name, defaults filled in.
        warnings: what is allowed and probably not meant.
    """

    spec: Spec
    capacities: Mapping[str, Capacity]
    warnings: tuple[str, ...]
