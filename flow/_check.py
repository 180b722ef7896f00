"""What ``build`` proves: collects the faults of every rule, and gives the plan where there is none.

Each ``_check_...`` file holds the rules of one matter; their functions yield faults, and none stops at the first.
"""

from collections.abc import Sequence

from ._check_calls import calls
from ._check_cells import cells
from ._check_pairs import pairs
from ._check_placement import placements
from ._check_shape import shape
from ._check_types import types
from ._check_values import capacities, settings, tickets
from ._check_warnings import warnings
from ._errors import BuildError, Fault
from ._limits import Capacity
from ._plan import Plan
from ._spec import CellSpec, EdgeSpec, NodeSpec, Spec


def check(spec: Spec, twice: Sequence[NodeSpec | CellSpec], wrong: Sequence[Fault] = ()) -> Plan:
    """Prove a graph.

    Args:
        spec: the graph, with settings that can be compared.
        twice: nodes and cells of a name that was used before.
        wrong: faults of settings that cannot be compared, and are not in the spec.

    Raises:
        BuildError: with every fault, root causes first: names, ports, cycles, calls, types, pairs, cells, settings,
            placements, capacities. What follows the edges of the graph is looked at only where these are sound, since the
            rest would be echoes.
    """
    broken = list(shape(spec, twice))
    apart = [] if broken else list(pairs(spec))
    faults = [*broken, *calls(spec), *types(spec), *apart]
    if not broken:
        faults += cells(spec)
    faults += [*wrong, *settings(spec), *placements(spec)]
    if not broken and not apart:
        faults += capacities(spec)
    if faults:
        raise BuildError(spec.name, faults)
    edges = {edge.name: resolve(spec, edge) for edge in spec.edges}
    return Plan(spec, edges, tuple(warnings(spec)))


def resolve(spec: Spec, edge: EdgeSpec) -> Capacity:
    """Fill in what the user left open: twice the workers of the target, a whole group, or every ticket."""
    if edge.capacity.items is not None:
        return edge.capacity
    source, target = spec.nodes[edge.source], spec.nodes[edge.target]
    items = max(2 * target.workers, source.size, tickets(spec).get(edge.target, 0))
    return Capacity(items, edge.capacity.cost, edge.capacity.measure)
