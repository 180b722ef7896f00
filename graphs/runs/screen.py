"""The live view as lines of text for a terminal of some size: what is shown where, and what goes when there is no room.

Pure: from what is known at one moment to lines. Drawn on a thread, so that the loop need not wait for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from rich.text import Text

from graphs.runs.curves import plot, sparkline
from graphs.runs.recent import NodeNow

STATES: Mapping[str, tuple[str, str]] = {
    "work": ("work", "green"),
    "input": ("no input", "bright_black"),
    "ticket": ("no ticket", "magenta"),
    "pool": ("no pool", "yellow"),
    "output": ("no room", "red"),
}
"""What workers do, as it is called and coloured here. All but the first is waiting."""
COLUMNS = (
    ("loss", "loss", "{:.3f}"), ("reward_mean", "reward", "{:.3f}"), ("success", "success", "{:.1%}"),
    ("lag_mean", "lag", "{:.2f}"), ("goodput", "goodput", "{:.0%}"), ("step_s", "s/step", "{:.2f}"),
    ("heldout", "held-out", "{:.1%}"), ("success_so_far", "success so far", "{:.1%}"),
    ("sampled_per_second", "sampled/s", "{:,.0f}"), ("engine_gap", "engine gap", "{:.0e}"),
)  # fmt: skip
_HEALTH = (
    ("open_groups", "open groups", "{:.0f}"), ("half_filled_groups", "half filled", "{:.0f}"),
    ("oldest_group_s", "oldest", "{:.0f} s"), ("ready_groups", "ready", "{:.0f}"), ("engine_utilisation", "engine", "{:.0%}"),
    ("trainer_work_share", "trainer", "{:.0%}"), ("host_memory_mb", "memory", "{:,.0f} MB"),
    ("loop_lag_ms", "loop lag", "{:.0f} ms"), ("trajectories_per_minute", "episodes/min", "{:,.0f}"),
    ("timed_out_share", "timed out", "{:.0%}"), ("truncated_share", "truncated", "{:.0%}"),
)  # fmt: skip
_GOOD = {"finished"}


@dataclass(frozen=True)
class Problem:
    """A kind of error of a stage.

    Attributes:
        stage: name.
        kind: of the error.
        count: how often it ended an item; 0 where it ended none, as before a retry.
        text: what its first traceback ends with, and where.
    """

    stage: str
    kind: str
    count: int
    text: str


@dataclass(frozen=True)
class Shown:
    """What is known at one moment.

    Attributes:
        title: of the phase.
        progress: steps and time.
        share: of the steps that are done; ``None`` where their number is not known.
        row: newest figures of steps and evaluations.
        health: newest row of health.
        nodes: of the line, in order.
        beside: nodes of a branch beside it, as a held-out evaluation.
        rewards: mean reward of the steps.
        heldout: success of the evaluations.
        statuses: episodes by how they ended.
        limit: what limits the run now.
        problems: kinds of errors, the most frequent first.
        alerts: those that are raised.
        errors: where tracebacks lie.
    """

    title: str
    progress: str
    share: float | None = None
    row: Mapping[str, Any] = field(default_factory=dict[str, Any])
    health: Mapping[str, Any] = field(default_factory=dict[str, Any])
    nodes: Sequence[NodeNow] = ()
    beside: Sequence[NodeNow] = ()
    rewards: Sequence[float] = ()
    heldout: Sequence[float] = ()
    statuses: Mapping[str, int] = field(default_factory=dict[str, int])
    limit: str | None = None
    problems: Sequence[Problem] = ()
    alerts: Sequence[str] = ()
    errors: str = ""


def lines(shown: Shown, width: int, height: int) -> list[Text]:
    """Draw.

    Args:
        shown: what is known.
        width: of the terminal, in characters.
        height: lines that may be used; what matters least is left out first.
    """
    large = height >= 36
    top = [_bar(shown, width), _fitted(metrics(shown.row), width)]
    below = [
        *_statuses(shown, width),
        *_fitted_if(_figures(shown.health, _HEALTH), width),
        *_limit(shown),
        *_alerts(shown, 6 if large else 2),
        *_problems(shown, 8 if large else 2),
    ]
    room = height - len(top) - len(below)
    curves = _plots(shown, width, min(8, room - len(shown.nodes) - len(shown.beside) - 4)) if large else []
    curves = curves or _sparklines(shown, width)
    table = _table(shown, width, room - len(curves))
    whole = [*top, *table, *curves, *below][:height]
    for line in whole:
        line.truncate(width, overflow="ellipsis")
        line.no_wrap = True
    return whole


def metrics(row: Mapping[str, Any]) -> list[str]:
    """The figures of a row that people look at, each with its name."""
    if row.get("lag_max") is not None and all(isinstance(row.get(name), Real) for name in ("step_s", "sampled_tokens")):
        row = {**row, "sampled_per_second": row["sampled_tokens"] / max(row["step_s"], 1e-9)}
    return _figures(row, COLUMNS)


def _figures(row: Mapping[str, Any], columns: Sequence[tuple[str, str, str]]) -> list[str]:
    # A graph of the user's own may report text by such a name.
    return [f"{label} {form.format(row[key])}" for key, label, form in columns if isinstance(row.get(key), Real)]


def _fitted(parts: Sequence[str], width: int) -> Text:
    """Parts side by side, as many as there is room for."""
    text = ""
    for part in parts:
        longer = f"{text}  {part}" if text else part
        if len(longer) > width:
            break
        text = longer
    return Text(text)


def _fitted_if(parts: Sequence[str], width: int) -> list[Text]:
    return [_fitted(parts, width)] if parts else []


def _bar(shown: Shown, width: int) -> Text:
    head, end = Text(shown.title.partition(":")[0], style="bold"), Text(f" {shown.progress}")
    space = min(width - len(head) - len(end) - 1, 60)
    if shown.share is None or space < 10:
        return head + end
    full = round(space * min(shown.share, 1.0))
    return Text.assemble(head, " ", ("━" * full, "cyan"), ("━" * (space - full), "bright_black"), end)


# --- the table of nodes ---


def _table(shown: Shown, width: int, most: int) -> list[Text]:
    nodes = [*shown.nodes, *shown.beside] if len(shown.nodes) + len(shown.beside) < most else list(shown.nodes)
    hidden = len(shown.nodes) + len(shown.beside) - len(nodes)
    if hidden and len(nodes) + 2 <= most:
        rest = [Text(f"and {hidden} stages beside the line", style="bright_black")]
    elif len(nodes) + 1 > most:
        rest = [Text(f"and {len(nodes) - max(most - 2, 0) + hidden} more stages", style="bright_black")]
        nodes = nodes[: max(most - 2, 0)]
    else:
        rest = []
    name_width = max((len(node.name) for node in nodes), default=5)
    space = max(min(width - name_width - 37, 60), 8)
    legend = [part for label, style in STATES.values() for part in ((label, style), " ")]
    short = [part for state, (_, style) in STATES.items() for part in ((state, style), " ")]
    heading = Text(f"{'stage':<{name_width}} {'in':>7} {'/s':>7} {'waits':>5} {'dropped':>7}  ", style="bold")
    heading.append_text(Text.assemble(*(legend if space >= 44 else short)))
    return [heading, *(_node(node, name_width, space) for node in nodes), *rest]


def _node(node: NodeNow, name_width: int, space: int) -> Text:
    rate = f"{node.per_second:.1f}" if node.per_second < 1000 else f"{node.per_second / 1000:.1f}k"
    line = Text(f"{node.name:<{name_width}} {_short(node.count):>7} {rate:>7} {_short(node.depth):>5} ")
    line.append(f"{_short(node.dropped) if node.dropped else '':>7}  ", style="red")
    begin = filled = 0.0
    for state, (_, style) in STATES.items():
        filled += node.shares.get(state, 0.0)
        block = "░" if state == "input" else "█"  # so that idle workers do not draw the eye
        line.append(block * (round(filled * space) - round(begin * space)), style=style)
        begin = filled
    line.append(" " * (space - round(filled * space)))
    line.append(f" {node.shares.get('work', 0.0):>4.0%}")
    return line


def _short(count: int) -> str:
    if count < 100_000:
        return str(count)
    return f"{count / 1e3:.0f}k" if count < 10_000_000 else f"{count / 1e6:.0f}M"


# --- curves ---


def _series(shown: Shown) -> list[tuple[str, Sequence[float], str, str]]:
    series = [("reward", shown.rewards, "{:.3f}", "green"), ("held-out", shown.heldout, "{:.1%}", "cyan")]
    return [each for each in series if each[1]]


def _sparklines(shown: Shown, width: int) -> list[Text]:
    return [
        Text.assemble(f"{name:<8} ", (sparkline(values, min(width - 20, 100)), style), " " + form.format(values[-1]))
        for name, values, form, style in _series(shown)
    ]


def _plots(shown: Shown, width: int, height: int) -> list[Text]:
    """The curves side by side; none where there is no room for them."""
    series = _series(shown)
    if height < 3 or not series:
        return []
    space = (width - 2 * (len(series) - 1)) // len(series)
    columns = []
    for name, values, form, style in series:
        head = f"{name} {form.format(values[-1])}  ({form.format(min(values))} to {form.format(max(values))}, {len(values)})"
        columns.append([(f"{head[:space]:<{space}}", "bold"), *((line, style) for line in plot(values, space, height))])
    return [Text("  ").join([Text(part, style=style) for part, style in parts]) for parts in zip(*columns, strict=True)]


# --- what is below ---


def _statuses(shown: Shown, width: int) -> list[Text]:
    if not shown.statuses:
        return []
    text = Text("episodes: ")
    for status, count in sorted(shown.statuses.items(), key=lambda each: -each[1]):
        text.append(f"{status} {count}  ", style="" if status in _GOOD else "yellow")
    return [text]


def _limit(shown: Shown) -> list[Text]:
    return [Text.assemble(("limit: ", "bold"), shown.limit)] if shown.limit else []


def _alerts(shown: Shown, most: int) -> list[Text]:
    told = [Text(f"alert: {alert}", style="bold red") for alert in shown.alerts[-most:]]
    more = len(shown.alerts) - len(told)
    return told if not more else [*told[:-1], told[-1].append(f"  and {more} more")]


def _problems(shown: Shown, most: int) -> list[Text]:
    told = []
    for problem in shown.problems[:most]:
        often = f"{problem.count} x " if problem.count else ""
        told.append(Text.assemble((f"{problem.stage}: {often}{problem.kind}", "red"), f"  {problem.text}"))
    if told and len(shown.problems) > most:
        told[-1].append(f"  and {len(shown.problems) - most} more in {shown.errors}")
    return told
