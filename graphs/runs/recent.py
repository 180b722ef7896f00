"""What a run did in the last seconds: the difference of two summaries. What it did in all is in the summary itself."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from flow import Summary

_WINDOW_S = 5.0


@dataclass(frozen=True)
class NodeNow:
    """A node in the last seconds.

    Attributes:
        name: of the node.
        count: items taken in all, or given where it takes none.
        per_second: lately.
        depth: items that wait before it.
        dropped: items given up in all.
        shares: of its workers' time lately, by state.
    """

    name: str
    count: int
    per_second: float
    depth: int
    dropped: int
    shares: Mapping[str, float]


class Recent:
    """Summaries of the last seconds.

    Args:
        window_s: how far they reach back.
    """

    def __init__(self, window_s: float = _WINDOW_S) -> None:
        self._window_s = window_s
        self._seen: deque[Summary] = deque()

    def see(self, now: Summary) -> None:
        """Take in one; the oldest that is kept is just older than the window."""
        self._seen.append(now)
        while len(self._seen) > 2 and now.seconds - self._seen[1].seconds >= self._window_s:
            self._seen.popleft()

    @property
    def then(self) -> Summary:
        """The oldest that is kept."""
        return self._seen[0]

    @property
    def now(self) -> Summary:
        """The newest."""
        return self._seen[-1]

    def nodes(self) -> list[NodeNow]:
        """All nodes. Before there is anything to compare, shares are of all the time so far."""
        return [self._node(name) for name in self.now.nodes]

    def _node(self, name: str) -> NodeNow:
        then, now = self.then.nodes[name], self.now.nodes[name]
        passed, worked = self.now.seconds - self.then.seconds, now.seconds - then.seconds
        count, before = now.taken or now.emitted, then.taken or then.emitted
        spent = {state: now.shares[state] * now.seconds - then.shares[state] * then.seconds for state in now.shares}
        return NodeNow(
            name=name,
            count=count,
            per_second=(count - before) / passed if passed > 0 else 0.0,
            depth=now.depth,
            dropped=sum(now.dropped.values()),
            shares={state: max(part / worked, 0.0) for state, part in spent.items()} if worked > 0 else dict(now.shares),
        )
