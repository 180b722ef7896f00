"""A verdict for people: plain lines of at most 80 columns, the answer first. The schema for scripts is ``flow.explain``'s."""

from collections.abc import Iterator, Sequence

from flow.explain import GraphVerdict, Leg, Part, Slow, Stage, Verdict
from graphs.verdict.advice import advised, around, idle_of, slowest
from graphs.verdict.names import TOLD_COUNTERS, TOLD_UNITS, of_lever, of_part, wider

_WIDTH = 80
_LEAST = 0.01
_ENDLESS = 9.0
"""Gain from which it says nothing how much more there could be."""
_MOST_PARTS, _MOST_SLOW, _MOST_LEGS, _MOST_RUNNERS, _MOST_TOOLS = 6, 12, 12, 3, 8


def told(verdict: Verdict) -> str:
    """The whole of it."""
    unseen = sum(each.seconds for each in verdict.unseen)
    outside = verdict.seconds - unseen - sum(graph.seconds for graph in verdict.graphs)
    lines = [f"{verdict.slices:,} slices over {time_of(verdict.seconds)}"]
    if outside >= _LEAST * verdict.seconds:
        lines[0] += f", {time_of(outside)} of it outside of any graph (loading, compiling)"
    lines += _unseen(verdict)
    if verdict.left_out:
        lines.append(f"warning: {verdict.left_out:,} events found no room in the trace; what follows lacks them")
    if len(verdict.graphs) > 1:
        width = max(len(_named(graph)) for graph in verdict.graphs)
        for graph in verdict.graphs:
            line = f"{_named(graph):<{width}} {time_of(graph.seconds):>8}  {_in_short(graph)}"
            lines.append(f"  {line}"[:_WIDTH])
    for graph in verdict.graphs:
        lines += ["", *_graph(graph, verdict)]
    lines += ["", "Work that took the most time in all:", *_slow(slowest(verdict, _MOST_SLOW))]
    if tools := around(verdict)[:_MOST_TOOLS]:
        lines += ["Tools and environments, the most time in all first:", *_slow(tools)]
    for row in verdict.compiled:
        again = f", {row.again} after a first step, {time_of(row.again_s)}" if row.again else ""
        lines.append(f"compiled in {row.where}: {row.count} times, {time_of(row.seconds)}{again}")
    return "\n".join(lines)


def _unseen(verdict: Verdict) -> Iterator[str]:
    """Times of which the trace says nothing."""
    pauses = [each.seconds for each in verdict.unseen if not each.missing]
    if pauses:
        yield f"{time_of(sum(pauses))} of it between one start of the run and the next ({len(pauses)})"
    for each in verdict.unseen:
        if each.missing:
            files = f"{each.missing[0]} to {each.missing[-1]}" if len(each.missing) > 1 else each.missing[0]
            yield from wrapped(
                f"warning: {time_of(each.seconds)} from {time_of(each.start)} on are not judged, since their files are gone: "
                f"{files}. The oldest go where a trace outgrows --options.trace-bytes. What lies before and behind is told "
                "apart."
            )


def _named(graph: GraphVerdict) -> str:
    """Its name, and which piece of it this is where it was cut."""
    return graph.graph if graph.pieces == 1 else f"{graph.graph} ({graph.piece} of {graph.pieces})"


def _in_short(graph: GraphVerdict) -> str:
    if graph.bound is None:
        return f"{graph.sink} waited {graph.idle:.0%}"
    return f"bounded by {of_lever(graph.bound).partition(':')[0]}; {graph.sink} waited {graph.idle:.0%}"


def _graph(graph: GraphVerdict, verdict: Verdict) -> Iterator[str]:
    what = "steps" if graph.way else "items"
    yield f"== {_named(graph)}: {graph.steps:,} {what} in {time_of(graph.seconds)}, {time_of(graph.step)} each =="
    yield from _bound(graph)
    yield ""
    yield f"{graph.sink} waited {graph.idle:.0%} of the time" + (". In the end for:" if graph.idle >= _LEAST else ".")
    yield from _parts(graph.idle_by)
    yield "The critical path, from the last step back to the beginning:"
    yield from _parts(graph.path)
    if graph.way:
        yield f"That of step {graph.way_step}, which took the median time:"
        yield from _way(graph.way)
    yield from _stages(graph.stages)
    for asked in graph.asked:
        busy = ", ".join(f"{name} {share:.0%}" for name, share in sorted(asked.busy.items(), key=lambda p: -p[1]))
        yield f"{asked.name}: {busy}. Idle {1 - min(1.0, sum(asked.busy.values())):.0%}:"
        yield from (f"  {share:>5.0%}  {why}" for why, share in idle_of(asked))
    yield from _levels(graph)
    yield from _events(graph)
    advice = advised(graph, verdict)
    if advice:
        yield "Try next:"
    for number, each in enumerate(advice, 1):
        gain = "" if each.gain is None else f" Estimated: {each.gain:+.0%} steps a second."
        yield from wrapped(f"{number}. {each.what}.{gain} {each.why[:1].upper()}{each.why[1:]}.", "  ", "     ")


def _bound(graph: GraphVerdict) -> Iterator[str]:
    bound = graph.bound
    if bound is None:
        yield from wrapped("Nothing bounded it that the trace knows of: most of the time lies between two pieces of work.")
        return
    most = "" if bound.most is None or bound.most > _ENDLESS else f", and no more than {bound.most:+.0%} however fast"
    if bound.kind in ("pool", "tickets") and bound.most is not None and bound.most <= _ENDLESS:
        most = f", and no more than {bound.most:+.0%} however many"
    share = "" if bound.kind == "tickets" else f", {bound.share:.0%} of the critical path"
    yield from wrapped(f"Bounded by {of_lever(bound)}{share}. {_upper(wider(bound))}: {bound.gain:+.0%} steps a second{most}.")
    others = [f"{wider(lever)} {lever.gain:+.0%}" for lever in graph.runners_up[:_MOST_RUNNERS] if lever.gain >= _LEAST]
    if others:
        yield from wrapped(f"Then: {', '.join(others)}.")


def _parts(parts: Sequence[Part]) -> Iterator[str]:
    shown = [part for part in parts if part.share >= _LEAST][:_MOST_PARTS]
    yield from (f"  {part.share:>5.0%}  {of_part(part)}" for part in shown)


def _way(way: Sequence[Leg]) -> Iterator[str]:
    longest = sorted((leg.seconds for leg in way), reverse=True)[:_MOST_LEGS]
    least = max(longest[-1], _LEAST * sum(leg.seconds for leg in way))
    for leg in way:
        if leg.seconds >= least:
            part = of_part(Part(leg.kind, leg.name, leg.seconds, 0.0))
            of = f", worker {leg.worker}" if leg.worker else ""
            yield f"  {time_of(leg.seconds):>8}  {part}" + (f": {leg.item}{of}" if leg.item else "")


def _stages(stages: Sequence[Stage]) -> Iterator[str]:
    width = max(12, *(len(stage.name) for stage in stages))
    yield f"{'node':<{width}} workers  pieces/s   work  input ticket   pool   room"
    for stage in stages:
        shares = (stage.work, stage.input, stage.ticket, stage.pool, stage.room)
        cells = "".join(f"{share:>7.0%}" if share >= 0.005 else f"{'':>7}" for share in shares)
        yield f"{stage.name:<{width}} {stage.workers:>7} {stage.rate:>9.2f}{cells}".rstrip()


def _levels(graph: GraphVerdict) -> Iterator[str]:
    """Counters, as far as one asks for them first."""
    told = [level for level in graph.levels if (level.unit in TOLD_UNITS or level.name in TOLD_COUNTERS) and level.most > 0]
    if told:
        yield f"{'counter':<28} {'mean':>10} {'most':>10}"
        yield from (f"{level.name[:28]:<28} {level.mean:>10,.4g} {level.most:>10,.4g} {level.unit}" for level in told)


def _events(graph: GraphVerdict) -> Iterator[str]:
    late = graph.stragglers
    if late is not None and late.waiting:
        worst = ", ".join(f"{item} {time_of(seconds)}" for item, seconds in late.worst[:3])
        yield from wrapped(
            f"{late.waiting} of {late.groups} groups waited for one member, {time_of(late.seconds)} in all, {late.share:.0%} "
            f"of the time of groups; the longest: {worst}."
        )
    told_counts = (("dropped", graph.dropped), ("retried", graph.retried), ("past their deadline", graph.overdue))
    for what, counts in told_counts:
        if counts:
            yield from wrapped(f"{what}: " + ", ".join(f"{count} {reason}" for reason, count in counts.items()))
    for stall in graph.stalls:
        yield from wrapped(f"stalled: {stall.splitlines()[0] if stall else ''}")


def _slow(rows: Sequence[Slow]) -> Iterator[str]:
    yield f"  {'where':<28} {'times':>8} {'in all':>8} {'p50':>7} {'p90':>7} {'p99':>7} {'most':>7}"
    for row in rows:
        name = row.where if row.name == row.where else f"{row.where} > {row.name}"
        name += f" {row.detail}" if row.detail else ""
        times = "".join(f" {time_of(seconds):>7}" for seconds in (row.p50, row.p90, row.p99, row.most))
        yield f"  {name[:28]:<28} {row.count:>8} {time_of(row.seconds):>8}{times}"


def wrapped(text: str, first: str = "", rest: str = "  ") -> Iterator[str]:
    """A paragraph in lines of 80 columns."""
    line = first
    for word in text.split():
        if len(line.rstrip()) + 1 + len(word) > _WIDTH and line.strip():
            yield line.rstrip()
            line = rest
        line += f"{word} "
    yield line.rstrip()


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def time_of(seconds: float) -> str:
    """A length of time with its unit, in three digits."""
    if seconds >= 100:
        return f"{seconds:,.0f} s"
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"
