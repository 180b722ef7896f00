"""Names of the nodes, pools and spans of the ready graphs, and what each is called when one speaks of it."""

from collections.abc import Mapping

from flow.explain import Lever, Part

SERVERS: Mapping[str, str] = {"engine": "model"}
"""Span in which an episode waits for an answer, by the track of who gives it."""
EPISODES, TRAINER, ENGINE_POOL = "episodes", "trainer", "engine"

TURNS = {"model", "queue", "prefill", "decode", "request"}
"""Slices of an episode in which the engine is at it."""
TOLD_UNITS, TOLD_COUNTERS = {"tokens/s", "slots", "requests"}, {"loop lag", "lag", "host memory", "tickets free"}
"""Counters worth a line, by unit and by name."""

_PARTS = {
    "work": "{name} at work",
    "commit": "{name} saving the run",
    "compile": "{name} compiling",
    "load": "load of {name}",
    "sync wait": "load of {name}, held back by an evaluation",
    "pool": "waiting for pool {name}",
    "room": "{name} waiting for room behind it",
    "hand-over": "late hand-over to {name} (event loop)",
    "start": "before the first piece of work",
}
_LEVERS = {
    "stage": "{name}",
    "source": "the source, {name}",
    "sink": "{name} itself",
    "pool": "the size of pool {name}",
    "tickets": "freshness: groups may not begin before newer {name} are loaded",
    "load": "the load of {name}",
    "compile": "compilation in {name}",
}
_WIDER = {
    "stage": "{name} twice as fast",
    "source": "{name} twice as fast",
    "sink": "{name} twice as fast",
    "pool": "pool {name} twice as large",
    "tickets": "one step more of lag",
    "load": "the load of {name} twice as fast",
    "compile": "half the compilation in {name}",
}


def of_part(part: Part) -> str:
    """What some time went to."""
    return _PARTS[part.kind].format(name=part.name)


def of_lever(lever: Lever) -> str:
    """What bounded."""
    return _LEVERS[lever.kind].format(name=lever.name or "weights")


def wider(lever: Lever) -> str:
    """What was tried on paper."""
    return _WIDER[lever.kind].format(name=lever.name or "weights")
