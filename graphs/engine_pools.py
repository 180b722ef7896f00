"""What episodes of a graph hold while they use its engine, so that overload waits in the graph, where it is seen.

An engine has fewer slots than a graph may have episodes at once. What is beyond them waits for a pool of the graph: first come
first served, as *wait for pool* in the trace and as a share of the stage's time in the report. Only a few requests wait in the
engine's own queue, which looks like work. ``rl.py`` and ``evaluate.py`` ask here; a graph of one's own with ``Episodes`` may.

Nobody may hold a unit while it waits for somebody who needs one. A turn waits in the engine for a slot, which comes free by
itself. But it can also wait there for other sessions to end, and that needs their further turns:

- ``eviction="never"``: a session that is new waits for a cache. Here an episode holds a unit for each session of its agent from
  beginning to end, with as many units as there are caches, so the engine never has more sessions than it can keep.
- ``swap="episode"``: a session that is new waits for weights, which wait for all that have begun. Here turns take no unit, and
  overload waits in the engine. An agent of several sessions would wait for itself, and is refused.

The counts are of one graph. Two graphs at once over one engine with ``eviction="never"`` would together begin more sessions
than there are caches, and may wait for each other for ever: give each an engine, or both ``eviction="oldest"``.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from stages.rollout.config import EngineConfig

TURNS = "engine"
"""Pool of the turns that the engine is asked for at once."""
SESSIONS = "sessions"
"""Pool of the sessions of the episodes that are under way."""


@dataclass(frozen=True)
class EnginePools:
    """What a graph declares for the engine it uses.

    Attributes:
        sizes: units of each pool, for ``Graph(pools=...)``.
        turn: pool of which a turn takes a unit, for ``Episodes(pool=...)``; ``None`` where turns take none.
        episode: units that an episode holds from beginning to end, for ``graph.stage(needs=...)``.
    """

    sizes: Mapping[str, int]
    turn: str | None
    episode: Mapping[str, int]


def engine_pools(config: EngineConfig, sessions: int = 1) -> EnginePools:
    """The pools for an engine with these settings.

    Args:
        config: of the engine.
        sessions: that an episode holds at once, as ``sessions_of`` tells of its agent.

    Raises:
        ValueError: such an episode would wait for itself.
    """
    _check_sessions(config, sessions)
    turn = None if config.swap == "episode" else TURNS
    sizes = {} if turn is None else {turn: config.turns}
    if config.eviction == "oldest":
        return EnginePools(sizes, turn, {})
    return EnginePools(sizes | {SESSIONS: config.slots + config.kept}, turn, {SESSIONS: sessions})


def _check_sessions(config: EngineConfig, sessions: int) -> None:
    if sessions > 1 and config.swap == "episode":
        raise ValueError(
            "expected an agent of one session with engine.swap='episode', which holds sessions back until all that have begun "
            f"are over; got one of {sessions}, which would wait for itself; set engine.swap to token"
        )
    caches = config.slots + config.kept
    if config.eviction == "never" and sessions > caches:
        raise ValueError(
            f"expected an agent of at most engine.slots + engine.kept = {caches} sessions with engine.eviction='never'; got "
            f"one of {sessions}, which would wait for itself; raise engine.kept to {sessions - config.slots}, or set "
            "engine.eviction to oldest"
        )
