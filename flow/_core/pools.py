"""Named pools of units, and rates of starts. A request asks for all it needs at once and is granted all at once, or waits.

One function grants, so hold-and-wait cannot occur. Requests are served downstream first, then first come first served. One that
does not fit holds back later requests for the pools it lacks units of, and lets them have those it could not use now anyway.
Either may overtake a request again and again, so one that was overtaken ``PATIENCE`` times goes first and holds back all it
needs: nobody starves.

A unit of a pool comes back when it is released. A start counted by a rate does not: the next is due ``1 / rate`` seconds later.
"""

from bisect import insort
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence

from .adaptive import Adaptive
from .item import Wake

PATIENCE = 64
"""Grants to later requests for the same pool after which a waiting one goes first."""


class Request:
    """Units wanted, waiting or granted.

    Attributes:
        needs: units by pool or rate.
        granted: whether the units are held.
        since: time of the grant.
    """

    __slots__ = ("ahead", "granted", "needs", "number", "order", "since", "wake")

    def __init__(self, needs: Mapping[str, int], depth: int, number: int, wake: Wake) -> None:
        self.needs, self.number, self.order, self.wake = needs, number, (-depth, number), wake
        self.granted = False
        self.since = 0.0
        self.ahead: Mapping[str, int] = {}  # by name: grants before this one goes first, those who came earlier left out


class Pools:
    """All pools and rates of a graph.

    Attributes:
        sizes: units of each pool, as they are now.
        granted: requests that hold units. To look at.
        free: units nobody holds; below 0 after a pool shrank by more than was free, which never takes a unit away.
        rates: starts a second, by name.
        clock: gives the time in seconds; the run puts its own here.
        call_at: has ``look`` called at a time; the run puts its own here.
    """

    def __init__(self, sizes: Mapping[str, int | tuple[int, int]], rates: Mapping[str, float] | None = None) -> None:
        self.adaptive = {name: Adaptive(*size) for name, size in sizes.items() if isinstance(size, tuple)}
        self.sizes = {name: size[0] if isinstance(size, tuple) else size for name, size in sizes.items()}
        self.free = dict(self.sizes)
        self.granted: set[Request] = set()
        self.rates = dict(rates or {})
        self.clock: Callable[[], float] = lambda: 0.0
        self.call_at: Callable[[float], None] = lambda when: None
        self._due = dict.fromkeys(self.rates, 0.0)  # by rate: when the next start may be
        self._requests: list[Request] = []  # in the order in which they are served
        # For each name who waits for it, in the order in which they came; those served or gone are skipped.
        self._arrivals: dict[str, deque[Request]] = {name: deque() for name in (*self.sizes, *self.rates)}
        self._grants: Counter[str] = Counter()
        self._wanting: Counter[str] = Counter()
        self._count = 0

    @property
    def waiting(self) -> int:
        """Requests not yet granted."""
        return len(self._requests)

    @property
    def asking(self) -> Sequence[Request]:
        """Requests not yet granted, the next first."""
        return self._requests

    def request(self, needs: Mapping[str, int], depth: int, wake: Wake) -> Request:
        """Ask for units. ``depth``: distance from the sources; larger is served first.

        Returns:
            The request, granted at once where nobody is ahead and the units are free; else ``wake`` is called when it is.
        """
        self._count += 1
        request = Request(needs, depth, self._count, wake)
        if not self._requests and self._fits(needs):
            self._give(request)
            return request
        request.ahead = {name: self._grants[name] + self._wanting[name] + PATIENCE for name in needs}
        self._wanting.update(dict.fromkeys(needs, 1))
        for name in needs:
            self._arrivals[name].append(request)
        insort(self._requests, request, key=lambda r: r.order)
        self._grant(silent=request)
        return request

    def release(self, request: Request) -> None:
        """Give the units back, or stop waiting for them. Harmless the second time."""
        if request.granted:
            request.granted = False
            self.granted.discard(request)
            for name, units in request.needs.items():
                if name in self.free:
                    self.free[name] += units
                    self._adapt(name, request.since)
            request.needs = {}
        elif request in self._requests:
            self._requests.remove(request)
            self._wanting.subtract(dict.fromkeys(request.needs, 1))
            request.ahead = {}
        if self._requests:
            self._grant()

    def resize(self, name: str, size: int) -> None:
        """Change a pool. Where it shrinks nobody loses what is held: there is less to grant until enough came back."""
        self.free[name] += size - self.sizes[name]
        self.sizes[name] = size
        self._grant()

    def look(self) -> None:
        """Grant what has come due by now."""
        self._grant()

    def _fits(self, needs: Mapping[str, int]) -> bool:
        free = self.free
        for name, units in needs.items():
            if free[name] < units if name in free else self._due[name] > self.clock():
                return False
        return True

    def _give(self, request: Request) -> None:
        now = request.since = self.clock()
        for name, units in request.needs.items():
            self._grants[name] += 1
            if name in self.free:
                self.free[name] -= units
            else:
                self._due[name] = max(now, self._due[name]) + units / self.rates[name]
        request.granted, request.ahead = True, {}
        self.granted.add(request)

    def _grant(self, silent: Request | None = None) -> None:
        blocked: set[str] = set()
        served: set[Request] = set()
        everything = len(self.free) + len(self._due)
        late = self._overtaken()
        for request in [*late, *self._requests] if late else self._requests:
            if len(blocked) == everything:
                break
            if request in served:
                continue
            if not blocked.isdisjoint(request.needs) or not self._fits(request.needs):
                blocked.update(request.needs if request in late else self._lacking(request.needs))
                continue
            self._give(request)
            served.add(request)
            self._wanting.subtract(dict.fromkeys(request.needs, 1))
            if request is not silent:
                request.wake()
        if served:
            self._requests = [request for request in self._requests if request not in served]
        self._ask_for_time(blocked)

    def _lacking(self, needs: Mapping[str, int]) -> list[str]:
        return [name for name, units in needs.items() if not self._fits({name: units})]

    def _overtaken(self) -> list[Request]:
        """Who waits longest for a pool and was overtaken too often there, in the order in which they came.

        Looked for pool by pool: one that waits for ever for a pool nobody releases must not stand before those of another.
        """
        late: list[Request] = []
        for name, line in self._arrivals.items():
            while line and not line[0].ahead:
                line.popleft()
            if line and self._grants[name] >= line[0].ahead[name] and line[0] not in late:
                late.append(line[0])
        late.sort(key=lambda request: request.number)
        return late

    def _ask_for_time(self, blocked: set[str]) -> None:
        now = self.clock()
        due = [when for name, when in self._due.items() if name in blocked and when > now]
        if due:
            self.call_at(min(due))

    def _adapt(self, name: str, since: float) -> None:
        limit = self.adaptive.get(name)
        if limit is not None:
            size = limit.released(self.clock() - since, self.sizes[name], wanted=self._wanting[name] > 0)
            self.free[name] += size - self.sizes[name]
            self.sizes[name] = size
