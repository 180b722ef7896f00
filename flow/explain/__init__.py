"""Says what a run waited for: of one that is under way from its counts (``limit``), of any from its trace (``explain``).

It knows nodes, edges, pools, tickets and versions, and no word of what they are for. ``_pieces`` takes a trace apart,
``_links`` ties who waited for whom, ``_path`` walks back from the end, ``_model`` and ``_replay`` do the same work again on
paper, ``_told`` counts, ``_explain`` puts the verdict together, whose schema is in ``_verdict``.
"""

from ._explain import explain
from ._limit import Limit, limit
from ._verdict import Asked, Compiled, GraphVerdict, Leg, Level, Lever, Part, Slow, Stage, Stragglers, Unseen, Verdict

__all__ = [
    "Asked", "Compiled", "GraphVerdict", "Leg", "Level", "Lever", "Limit", "Part", "Slow", "Stage", "Stragglers", "Unseen",
    "Verdict",    "explain", "limit",
]  # fmt: skip
