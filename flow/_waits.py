"""Who can still move: the parked workers are the wait-for graph, and a fixpoint over it finds those that never will again.

A worker in user code moves, and so does a load; from there it spreads to whoever waits for what these may give. The rule is
optimistic: where a wait could be ended in several ways, one that moves is enough. So what stays unmarked is certainly stuck,
and a deadlock over several units of one pool may go unseen, which the stall time then catches. Workers of one node that
wait for the same thing count as one, so the cost grows with the workers only by a look at each.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ._core.meter import State as Doing
from ._core.node import NodeState
from ._core.pools import Request
from ._core.state import State
from ._lane import Lane
from ._park import Parker
from ._workers.hands import Hands

TURN = "its turn"
"""What a worker waits for that keeps order: another worker of its node."""


@dataclass(eq=False)
class Waiters:
    """Workers of one node that do the same: are in user code, or wait for the same thing.

    Attributes:
        node: their node.
        doing: what they do.
        detail: what they wait for.
        hands: the workers.
        requests: what they ask of pools.
        timed: whether a deadline will end the attempt of one of them.
    """

    node: NodeState
    doing: Doing
    detail: str
    hands: list[Hands] = field(default_factory=list[Hands])
    requests: list[Request] = field(default_factory=list[Request])
    timed: bool = False

    @property
    def name(self) -> str:
        """Name of their node."""
        return self.node.spec.name


class Waits:
    """What every worker does at one moment.

    Args:
        state: the run's moment.
        workers: all workers.
        loading: whether a value is being loaded.
        patience_s: who began to wait less than this long ago is taken to move.

    Attributes:
        all: workers by what they do, in the order of the graph.
    """

    def __init__(
        self, state: State, workers: Sequence[Hands], loading: bool, patience_s: float = 0.0, now: float = 0.0
    ) -> None:
        self._state, self._loading = state, loading
        self._since = now - patience_s if patience_s else None
        groups: dict[tuple[str, Doing, str], Waiters] = {}
        self._of: dict[Lane, Waiters] = {}
        for hands in workers:
            lane = hands.lane
            if lane.open:
                detail = "" if lane.state == "work" else lane.detail
                waiters = groups.setdefault((lane.node, lane.state, detail), Waiters(hands.node, lane.state, detail))
                waiters.hands.append(hands)
                waiters.timed = waiters.timed or hands.task in hands.crew.deadlines
                self._of[lane] = waiters
        self.all = list(groups.values())
        for request in state.pools.asking:
            if (lane := owner(request)) in self._of:
                self._of[lane].requests.append(request)

    def stuck(self, *, deadlines: bool) -> list[Waiters]:
        """Who will certainly never move again.

        Args:
            deadlines: whether a deadline that will end an attempt counts as a move.
        """
        moving = {waiters for waiters in self.all if self._moves_itself(waiters, deadlines)}
        grew = True
        while grew:
            more = {waiters for waiters in self.all if waiters not in moving and self._may_move(waiters, moving)}
            grew = bool(more)
            moving |= more
        return [waiters for waiters in self.all if waiters not in moving]

    def holders(self, pool: str) -> list[tuple[Waiters, int]]:
        """Who holds units of a pool, and how many."""
        units: defaultdict[Waiters, int] = defaultdict(int)
        for request in self._state.pools.granted:
            if pool in request.needs and (lane := owner(request)) in self._of:
                units[self._of[lane]] += request.needs[pool]
        return sorted(units.items(), key=lambda pair: self.all.index(pair[0]))

    def waited_for(self, waiters: Waiters) -> list[str]:
        """Names of the nodes that could end a wait."""
        spec, name = self._state.plan.spec, waiters.name
        if waiters.doing == "input":
            writers = [each.source for each in spec.feedback if each.cell == spec.nodes[name].reads]
            return writers if waiters.node.spec.kind == "versions" else [edge.source for edge in spec.inputs(name)]
        if waiters.doing == "output":
            if waiters.detail == TURN:
                return [name]
            edges = spec.outputs(name)
            return [edge.target for edge in edges if edge.name == waiters.detail] or [edge.target for edge in edges]
        if waiters.doing == "pool":
            pools = list(dict.fromkeys(pool for request in waiters.requests for pool in self.lacking(request)))
            return list(dict.fromkeys(holder.name for pool in pools for holder, _ in self.holders(pool)))
        return [other.spec.name for other in self._line(waiters.node) if other is not waiters.node]

    def lacking(self, request: Request) -> list[str]:
        """Pools that have not what is asked for."""
        return [pool for pool, units in request.needs.items() if self._state.pools.free.get(pool, units) < units]

    def _moves_itself(self, waiters: Waiters, deadlines: bool) -> bool:
        if waiters.doing == "work" or (deadlines and waiters.timed):
            return True
        if waiters.doing == "pool" and len({owner(request) for request in waiters.requests}) < len(waiters.hands):
            return True  # one of them was granted what it asks for and has not woken yet
        reads = waiters.node.admission is not None or waiters.node.spec.kind == "versions"
        if self._loading and reads and waiters.doing in ("input", "ticket"):
            return True
        return self._since is not None and any(hands.lane.since > self._since for hands in waiters.hands)

    def _may_move(self, waiters: Waiters, moving: set[Waiters]) -> bool:
        nodes = {other.name for other in moving}
        if waiters.doing == "pool":
            return any(self._may_be_granted(request, moving) for request in waiters.requests)
        if any(name in nodes for name in self.waited_for(waiters)):
            return True
        if waiters.doing == "input":
            # A lease of a sibling may come back, and the barrier may ask the repeat for a member again.
            again = waiters.node.spec.kind == "repeat" and any(n.spec.name in nodes for n in self._pair(waiters.node))
            return again or waiters.name in nodes
        return False

    def _may_be_granted(self, request: Request, moving: set[Waiters]) -> bool:
        pools = self._state.pools
        ahead = [
            other for other in pools.asking if other.order < request.order and not other.needs.keys().isdisjoint(request.needs)
        ]
        if any(self._of.get(owner(other)) not in moving for other in ahead if owner(other) in self._of):
            return False
        for pool, units in request.needs.items():
            if pool in pools.rates:
                continue  # a start comes due by itself
            may_return = sum(held for holder, held in self.holders(pool) if holder in moving)
            if pools.free[pool] + may_return < units:
                return False
        return True

    def _pair(self, node: NodeState) -> Iterator[NodeState]:
        return (other for other in self._state.nodes.values() if other.groups is node.groups and other is not node)

    def _line(self, node: NodeState) -> Iterator[NodeState]:
        return (other for other in self._state.nodes.values() if other.admission is node.admission)


def owner(request: Request) -> Lane:
    """The lane of the worker that made a request."""
    wake: Callable[[], None] = request.wake
    assert isinstance(wake, Parker)
    assert isinstance(wake.owner, Lane)
    return wake.owner
