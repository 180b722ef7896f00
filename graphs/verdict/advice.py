"""The next experiment to try: what to set otherwise, and the figure of the trace that says so. No promise, a place to start.

What a change of a limit would bring is the verdict's own estimate. What stands behind a slow stage is told by the spans inside
it.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from flow.explain import Asked, GraphVerdict, Lever, Slow, Stage, Verdict
from graphs.verdict.names import ENGINE_POOL, EPISODES

_WORTH = 0.03
"""Throughput below which nothing is advised."""
_MOST = 4
_OPTIONS = {"rewards": "the judge's max_concurrency", "episodes": "--rl.max-concurrency"}


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
    seen: dict[str, Advice] = {}
    for advice in found:
        seen.setdefault(advice.what, advice)
    return tuple(sorted(seen.values(), key=lambda advice: -(advice.gain or 0.0))[:_MOST])


def _stage(lever: Lever, graph: GraphVerdict, verdict: Verdict) -> Sequence[Advice]:
    stage, more = _of(graph, lever.name), graph.experiments.get(lever.name, 0.0)
    on_path = f"{lever.share:.0%} of the critical path is {lever.name} at work"
    if more >= max(_WORTH, lever.gain / 2):
        what = f"more workers for {lever.name}, {stage.workers} -> {2 * stage.workers}"
        option = f" ({_OPTIONS[lever.name]})" if lever.name in _OPTIONS else ""
        return [Advice(what + option, f"its workers are at work {stage.work:.0%} of the time; {on_path}", more)]
    if lever.name != EPISODES:
        return [Advice(f"a faster {lever.name}", f"{on_path}; more workers would not help, one takes too long", lever.gain)]
    return [*_inside_episodes(lever, graph, verdict), *_long_episodes(lever, graph)]


def _inside_episodes(lever: Lever, graph: GraphVerdict, verdict: Verdict) -> Sequence[Advice]:
    """What takes the time of an episode: the model's turns, or tools and environments."""
    spans = {row.name: row for row in verdict.slow if row.where == lever.name and not row.detail}
    model, tool = (spans[name].seconds if name in spans else 0.0 for name in ("model", "tool"))
    whole = spans[lever.name].seconds if lever.name in spans else 0.0
    if not whole or not model + tool:
        return []
    if tool > model:
        return [
            Advice(_faster_tools(verdict), f"{tool / whole:.0%} of an episode's time is tools and the environment", lever.gain)
        ]
    engine = next(iter(graph.asked), None)
    busy = 0.0 if engine is None else sum(engine.busy.values())
    what = "a faster engine: its mesh, fewer tokens a turn" if busy > 0.6 else "shorter turns, or more room between them"
    why = f"{model / whole:.0%} of an episode's time it waits for the model"
    return [Advice(what, f"{why}; the engine is busy {busy:.0%} of the time" if engine else why, lever.gain)]


def _faster_tools(verdict: Verdict) -> str:
    names = {"setup", "reset", "queue", "model", "tool", "score", EPISODES}
    tools = [row for row in verdict.slow if row.where == EPISODES and row.name not in names and not row.detail]
    return f"a faster tool {tools[0].name}, p99 {tools[0].p99:.2g} s" if tools else "faster tools, or a limit on their time"


def _long_episodes(lever: Lever, graph: GraphVerdict) -> Sequence[Advice]:
    late = graph.stragglers
    if late is None or late.waiting < late.groups / 4:
        return []
    why = f"{late.waiting} of {late.groups} groups waited for one member, {late.share:.0%} of their time"
    return [Advice("a limit on the length of episodes (turns, tokens, --rl.limits), or a larger --rl.max-lag", why, None)]


def _sink(lever: Lever, graph: GraphVerdict, verdict: Verdict) -> Sequence[Advice]:
    why = f"{lever.name} works {_of(graph, lever.name).work:.0%} of the time and is {lever.share:.0%} of the critical path"
    return [Advice("a larger mesh for the trainer, or wider micro-batches", why, lever.gain)]


def _source(lever: Lever, graph: GraphVerdict, verdict: Verdict) -> Sequence[Advice]:
    why = f"{lever.share:.0%} of the critical path is {lever.name} drawing tasks"
    return [Advice("tasks prepared beforehand: a file instead of a generator", why, lever.gain)]


def _pool(lever: Lever, graph: GraphVerdict, verdict: Verdict) -> Sequence[Advice]:
    waits = {stage.name: stage.pools[lever.name] for stage in graph.stages if lever.name in stage.pools}
    told = ", ".join(f"{name} waits for it {share:.0%} of the time" for name, share in waits.items())
    what = "more slots (--engine.slots)" if lever.name == ENGINE_POOL else f"a larger pool {lever.name} (--rl.pools)"
    return [Advice(what, told or f"{lever.share:.0%} of the critical path waits for it", lever.gain)]


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
    why = f"{lever.share:.0%} of the critical path is compilation in {lever.name}; compiled again {again} times"
    return [Advice("fewer shapes: one row length, fixed buckets; a compilation cache kept between runs", why, lever.gain)]


_RULES: Mapping[str, Callable[[Lever, GraphVerdict, Verdict], Sequence[Advice]]] = {
    "stage": _stage, "sink": _sink, "source": _source, "pool": _pool, "tickets": _tickets, "load": _load, "compile": _compile,
}  # fmt: skip


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


def slowest(verdict: Verdict, most: int) -> Sequence[Slow]:
    """Work that took the most time in all."""
    return [row for row in verdict.slow if row.count and row.seconds > 0][:most]
