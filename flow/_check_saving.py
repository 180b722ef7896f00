"""Rule B7, checked where a run is to be saved: all of its graph can be. And who declares a state, and whose steps count."""

from collections.abc import Mapping

from ._errors import Fault, NotResumable
from ._limits import Processes
from ._plan import Plan
from .saving._commit import MANIFEST, MOMENT
from .saving._declared import Resumable, Saves, check_resumable
from .saving._image import Ports


def resumables(plan: Plan, beside: Mapping[str, object]) -> dict[str, Resumable]:
    """All that declares a state, by name: stages, owners of the loads of cells, and what stands beside the graph."""
    found: dict[str, Resumable] = {}
    for name, node in plan.spec.nodes.items():
        if isinstance(node.stage, Resumable):
            found[name] = node.stage
    for name, cell in plan.spec.cells.items():
        owner = getattr(cell.load, "__self__", cell.load)
        if isinstance(owner, Resumable):
            found[f"cell {name}"] = owner
    return found | {f"beside {name}": one for name, one in beside.items() if isinstance(one, Resumable)}


def faults_of(plan: Plan, ports: Ports, beside: Mapping[str, object]) -> list[Fault]:
    """Rule B7: what of a graph, and of what stands beside it, cannot be saved."""
    spec, found = plan.spec, [_fault(error, where) for error, where in ports.refusals]
    for name, node in spec.nodes.items():
        place = f"{spec.name}.{name}"
        if node.kind == "source":
            try:
                check_resumable(node.stage, place)
            except NotResumable as error:
                found.append(_fault(error, node.where))
        elif isinstance(node.stage, Resumable) and isinstance(node.placement, Processes):
            got = "one in processes, where its state cannot be seen"
            expected = "a stage with a state to be on the loop or on threads"
            found.append(Fault("B7", place, expected, got, node.where, "declare another placement"))
        if isinstance(node.stage, Resumable) and any(edge.durable for edge in spec.outputs(name)):
            got, remedy = f"{type(node.stage).__name__} with one", "give the state to a stage of its own, or leave durable out"
            expected = "a stage without a state before a durable edge, as what stands in for an attempt leaves nothing in it"
            found.append(Fault("B7", place, expected, got, node.where, remedy))
        if isinstance(node.stage, Saves) and name in (MANIFEST, MOMENT):
            remedy = "rename the node"
            found.append(Fault("B7", place, "a name that is no file of a commit", f"'{name}'", node.where, remedy))
    for name, one in beside.items():
        if not isinstance(one, Resumable):
            missing = " and ".join(f"{method}()" for method in ("state", "restore") if not hasattr(one, method))
            got = f"{type(one).__name__} without {missing}"
            expected, remedy = "what declares a state, with state() and restore(state)", "give it both, or leave it out"
            found.append(Fault("B7", f"{spec.name}.beside {name}", expected, got, "", remedy))
    saving = [name for name, node in spec.nodes.items() if node.collect is not None and isinstance(node.stage, Saves)]
    if len(saving) > 1:
        expected = "one sink that saves more than its state, since a commit belongs to a step of it"
        remedy = "train in two graphs, or have one sink hold both"
        found.append(Fault("B7", spec.name, expected, " and ".join(saving), spec.where, remedy))
    return found


def _fault(error: NotResumable, where: str = "") -> Fault:
    return Fault("B7", error.where, error.expected, error.got, where, error.remedy)


def triggers(plan: Plan) -> frozenset[str]:
    """Sinks whose steps are followed by commits."""
    stepping = {name: node.stage for name, node in plan.spec.nodes.items() if node.collect is not None}
    saving = {name for name, stage in stepping.items() if isinstance(stage, Saves)}
    return frozenset(saving or stepping)
