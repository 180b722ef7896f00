"""The next experiment to try: what to set otherwise, and the figure of the trace that says so. No promise, a place to start.

What a change of a limit would bring is the verdict's own estimate. What stands behind a slow stage is told by the spans inside
it.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from flow.explain import Asked, GraphVerdict, Lever, PoolUse, Slow, Stage, Verdict
from graphs.verdict.names import ENGINE_POOL, EPISODES, TRAINER, TURNS

_WORTH = 0.03
"""Throughput below which nothing is advised."""
_MOST = 4
_LATE = 0.1
"""Share of the critical path in late hand-overs from which the event loop is spoken of."""
_ROOMY = 0.7
"""Share of the time that an engine is busy below which more requests may cost it nothing."""
_OF_ENVIRONMENTS = {"setup", "reset", "score", "close"}
_OPTIONS = {"episodes": "max-concurrency"}


class Advice(msgspec.Struct, frozen=True):
    """One experiment.

    Attributes:
        what: to change.
        why: the figure.
        gain: throughput it may bring; ``None`` where that was not estimated.
    """

    what: str
    why: str
    gain: float | None


def advised(graph: GraphVerdict, verdict: Verdict) -> tuple[Advice, ...]:
    """What to try next with a graph, the most promising first.

    Args:
        graph: the execution.
        verdict: of the whole trace, for what lies inside attempts.
    """
    levers = [lever for lever in (graph.bound, *graph.runners_up) if lever is not None and lever.gain >= _WORTH]
    found = [advice for lever in levers for advice in _RULES[lever.kind](lever, graph, verdict)]
    found += _event_loop(graph)
    seen: dict[str, Advice] = {}
    for advice in found:
        seen.setdefault(advice.what, advice)
    return tuple(seen.values())[:_MOST]


def _event_loop(graph: GraphVerdict) -> Sequence[Advice]:
    """Nothing that is declared in the graph makes up for an event loop that is behind."""
    late = sum(part.share for part in graph.path if part.kind == "hand-over")
    if late < _LATE:
        return []
    what = "less work on the event loop: environments, tools and rewards as plain functions, which run in threads"
    return [Advice(what, f"{late:.0%} of the critical path is hand-overs that came late; see the counter loop lag", None)]


def _stage(lever: Lever, graph: GraphVerdict, verdict: Verdict) -> Sequence[Advice]:
    stage, more = _of(graph, lever.name), graph.experiments.get(lever.name, 0.0)
    on_path = f"{lever.share:.0%} of the critical path is {lever.name} at work"
    helps = more >= max(_WORTH, lever.gain / 2)
    inside = _inside_episodes(lever, graph, verdict, stage, more if helps else 0.0) if lever.name == EPISODES else ()
    if inside:
        return [*inside, *_long_episodes(graph)]
    if helps:
        option = f" ({_option(graph, _OPTIONS[lever.name])})" if lever.name in _OPTIONS else ""
        what = f"more workers for {lever.name}, {stage.workers} -> {2 * stage.workers}{option}"
        return [Advice(what, f"its workers are at work {stage.work:.0%} of the time; {on_path}", more)]
    slower = Advice(f"a faster {lever.name}", f"{on_path}; more workers would not help, one takes too long", lever.gain)
    return [slower, *(_long_episodes(graph) if lever.name == EPISODES else ())]


def _inside_episodes(lever: Lever, graph: GraphVerdict, verdict: Verdict, stage: Stage, more: float) -> Sequence[Advice]:
    """What takes the time of an episode, the model's turns or tools and environment; nothing where no slice tells.

    Args:
        lever: the episodes.
        graph: the execution.
        verdict: of the whole trace.
        stage: the episodes.
        more: what twice the workers would bring, if everything else kept its pace; 0 for next to nothing.
    """
    spans = {row.name: row for row in verdict.slow if row.where == lever.name and not row.detail}
    model, tool = (spans[name].seconds if name in spans else 0.0 for name in ("model", "tool"))
    whole = spans[lever.name].seconds if lever.name in spans else 0.0
    if not whole or not model + tool:
        return []
    at_once = f"{stage.workers} -> {2 * stage.workers} ({_option(graph, _OPTIONS[EPISODES])}"
    if tool > model:
        found = [
            Advice(_faster_tools(verdict), f"{tool / whole:.0%} of an episode's time is tools and the environment", lever.gain)
        ]
        why = f"episodes mostly wait for tools, and their workers are taken {stage.work:.0%} of the time"
        return [*found, Advice(f"more episodes at once, {at_once})", why, more)] if more else found
    engine = next(iter(graph.asked), None)
    busy = 1.0 if engine is None else sum(engine.busy.values())
    why = f"{model / whole:.0%} of an episode's time it waits for the model" + (
        "" if engine is None else f"; the engine is busy {busy:.0%} of the time"
    )
    found = [Advice("a faster engine: its mesh, fewer tokens a turn, fewer turns", why, lever.gain)]
    if more and busy < _ROOMY:
        why = (
            f"the engine is busy only {busy:.0%} of the time: {more:+.0%} {graph.unit}s a second if it kept its pace with more"
        )
        found.insert(0, Advice(f"more episodes at once, {at_once} and --engine.slots)", why, None))
    return found


def _faster_tools(verdict: Verdict) -> str:
    tools = [row for row in around(verdict) if row.name not in _OF_ENVIRONMENTS]
    return f"a faster tool {tools[0].name}, p99 {tools[0].p99:.2g} s" if tools else "faster tools, or a limit on their time"


def _long_episodes(graph: GraphVerdict) -> Sequence[Advice]:
    late = graph.stragglers
    if late is None or late.waiting < late.groups / 4:
        return []
    why = f"{late.waiting} of {late.groups} groups waited for one member, {late.share:.0%} of their time"
    what = f"a limit on the length of episodes (turns, tokens, {_option(graph, 'limits')})"
    return [Advice(what + (", or a larger --rl.max-lag" if graph.unit == "step" else ""), why, None)]


def _sink(lever: Lever, graph: GraphVerdict, verdict: Verdict) -> Sequence[Advice]:
    why = f"{lever.name} works {_of(graph, lever.name).work:.0%} of the time and is {lever.share:.0%} of the critical path"
    trains = lever.name == TRAINER
    return [
        Advice("a larger mesh for the trainer, or wider micro-batches" if trains else f"a faster {lever.name}", why, lever.gain)
    ]


def _source(lever: Lever, graph: GraphVerdict, verdict: Verdict) -> Sequence[Advice]:
    why = f"{lever.share:.0%} of the critical path is {lever.name} drawing tasks"
    return [Advice("tasks prepared beforehand: a file instead of a generator", why, lever.gain)]


def _pool(lever: Lever, graph: GraphVerdict, verdict: Verdict) -> Sequence[Advice]:
    waits = {stage.name: stage.pools[lever.name] for stage in graph.stages if lever.name in stage.pools}
    told = ", ".join(f"{name} waits for it {share:.0%} of the time" for name, share in waits.items())
    what = (
        "more slots (--engine.slots)"
        if lever.name == ENGINE_POOL
        else f"a larger pool {lever.name} ({_option(graph, 'pools')})"
    )
    use = next((use for use in graph.pools if use.name == lever.name), None)
    full = "" if use is None else f"; {use.held:.0%} of its units are held{_by_permits(use)}"
    return [Advice(what, (told or f"{lever.share:.0%} of the critical path waits for it") + full, lever.gain)]


def _by_permits(use: PoolUse) -> str:
    """Whether it is permits inside attempts that hold them."""
    holder, share = next(iter(use.permits.items()), ("", 0.0))
    return f", mostly by permits inside {holder}" if share > use.held / 2 else ""


def _tickets(lever: Lever, graph: GraphVerdict, verdict: Verdict) -> Sequence[Advice]:
    why = f"{graph.sink} waits {graph.idle:.0%} of the time, and groups may not begin earlier"
    what = "a larger max_lag (--rl.max-lag), if the loss corrects for it, and engine and trainer do not share their devices"
    return [Advice(what, why, lever.gain)]


def _load(lever: Lever, graph: GraphVerdict, verdict: Verdict) -> Sequence[Advice]:
    why = f"{lever.share:.0%} of the critical path is the load of {lever.name}"
    return [
        Advice(
            "fewer or quicker weight syncs: more groups a step, adapters only, engine and trainer on one mesh", why, lever.gain
        )
    ]


def _compile(lever: Lever, graph: GraphVerdict, verdict: Verdict) -> Sequence[Advice]:
    again = sum(row.again for row in verdict.compiled)
    why = f"{lever.share:.0%} of the critical path is compilation in {lever.name}; compiled {again} times after a first step"
    return [Advice("fewer shapes: one row length, fixed buckets; a compilation cache kept between runs", why, lever.gain)]


_RULES: Mapping[str, Callable[[Lever, GraphVerdict, Verdict], Sequence[Advice]]] = {
    "stage": _stage, "sink": _sink, "source": _source, "pool": _pool, "tickets": _tickets, "load": _load, "compile": _compile,
}  # fmt: skip


def _option(graph: GraphVerdict, name: str) -> str:
    """A setting of the graph on the command line. What takes no steps is an evaluation."""
    return f"--{'rl' if graph.unit == 'step' else 'evaluate'}.{name}"


def _of(graph: GraphVerdict, name: str) -> Stage:
    return next(stage for stage in graph.stages if stage.name == name)


def idle_of(asked: Asked) -> Sequence[tuple[str, float]]:
    """Why a server was idle, in words, the most first."""
    found = [
        ("requests under way, between two of its steps", asked.asked),
        ("new weights being loaded", asked.loading),
        ("episodes in tools, environments and elsewhere", asked.elsewhere),
        ("no episode under way", asked.nothing),
    ]
    return sorted(((why, share) for why, share in found if share >= 0.005), key=lambda pair: -pair[1])


def around(verdict: Verdict) -> Sequence[Slow]:
    """Tools and environments: what episodes do that is no turn of the model."""
    besides = {*TURNS, "tool", EPISODES}
    return [row for row in verdict.slow if row.where == EPISODES and row.name not in besides and not row.detail]


def slowest(verdict: Verdict, most: int) -> Sequence[Slow]:
    """Work that took the most time in all; compilations are told apart."""
    return [row for row in verdict.slow if row.seconds > 0 and row.name != "compile"][:most]
