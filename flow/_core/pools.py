"""Named pools of units. A request asks for all it needs at once and is granted all at once, or waits.

One function grants. Requests are served downstream first, then first come first served; one that does not fit holds back
later requests for the same pools, and nobody else, so neither starvation nor hold-and-wait can occur.
"""

from bisect import insort
from collections.abc import Mapping, Sequence

from .item import Wake


class Request:
    """Units wanted, waiting or granted.

    Attributes:
        needs: units by pool.
        granted: whether the units are held.
    """

    __slots__ = ("granted", "needs", "order", "wake")

    def __init__(self, needs: Mapping[str, int], order: tuple[int, int], wake: Wake) -> None:
        self.needs, self.order, self.wake = needs, order, wake
        self.granted = False


class Pools:
    """All pools of a graph.

    Attributes:
        granted: requests that hold units. To look at.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes = dict(sizes)
        self.free = dict(sizes)
        self.granted: set[Request] = set()
        self._requests: list[Request] = []
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
        request = Request(needs, (-depth, self._count), wake)
        insort(self._requests, request, key=lambda r: r.order)
        self._grant(silent=request)
        return request

    def release(self, request: Request) -> None:
        """Give the units back, or stop waiting for them. Harmless the second time."""
        if request.granted:
            request.granted = False
            self.granted.discard(request)
            for pool, units in request.needs.items():
                self.free[pool] += units
            request.needs = {}
        elif request in self._requests:
            self._requests.remove(request)
        self._grant()

    def _grant(self, silent: Request | None = None) -> None:
        blocked: set[str] = set()
        waiting: list[Request] = []
        for request in self._requests:
            if blocked.isdisjoint(request.needs) and all(self.free[p] >= n for p, n in request.needs.items()):
                for pool, units in request.needs.items():
                    self.free[pool] -= units
                request.granted = True
                self.granted.add(request)
                if request is not silent:
                    request.wake()
            else:
                blocked.update(request.needs)
                waiting.append(request)
        self._requests = waiting
