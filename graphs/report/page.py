"""The report of a run as one page that needs no network, and the list of runs. Puts together; what it says is elsewhere.

Whatever came from a model, a tool or a setting reaches the page through a template that escapes it; and the page's own policy
lets nothing run but its one script, by its hash, so that what slipped through would stay text all the same.
"""

import base64
import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from graphs.report import episodes, figures, tables
from graphs.report.axes import percent
from graphs.report.episodes import Shown
from graphs.report.picture import plot_style
from graphs.report.plots import drawn
from graphs.report.record import MOST_KINDS, ErrorKind, RunRecord, number, read_object, read_record, read_rows
from graphs.report.verdict import Told, verdict_of
from graphs.runs.folder import ATTEMPTS, SUMMARY

REPORT = "report.html"
_TEMPLATES = Path(__file__).with_name("template")


def write_report(folder: Path, most_bytes: int | None = None) -> Path:
    """Write ``report.html`` into the folder of a run, whole or not at all, and give it.

    Args:
        folder: of the run.
        most_bytes: see ``verdict_of``.

    Raises:
        OSError: it cannot be written.
    """
    record = read_record(folder)
    path = folder / REPORT
    part = path.with_suffix(".part")
    part.write_text(page(record.folder.name, body(record, verdict_of(record, most_bytes))), encoding="utf-8")
    return part.replace(path)


def page(title: str, inside: str, *, refresh_s: float = 0.0) -> str:
    """A whole page.

    Args:
        title: of its window.
        inside: what ``body`` or ``list_of_runs`` gives.
        refresh_s: seconds between two questions for what is new, to the server that the page came from; 0 for none.
    """
    script = (_TEMPLATES / "script.js").read_text(encoding="utf-8")
    style = plot_style() + (_TEMPLATES / "style.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    policy += "; connect-src 'self'" if refresh_s else ""
    return rendered(
        "page.html",
        title=title,
        policy=policy,
        style=Markup(style),
        script=Markup(script),
        body=Markup(inside),
        refresh_s=refresh_s,
    )


def body(record: RunRecord, verdict: Told | None = None, *, listed: bool = False) -> str:
    """What the page of a run holds.

    Args:
        record: of the run.
        verdict: what bounded it; ``None`` where that is not known.
        listed: whether there is a list of runs one level up.
    """
    early = [(f"before-{name.replace(' ', '-')}", f"Before: {name}", plots) for name, plots in figures.before(record)]
    parts = [
        ("learning", "Learning", figures.learning(record)),
        ("flow", "Episodes and tokens", figures.flowing(record)),
        ("speed", "Speed", figures.speed(record)),
        ("condition", "Condition over time", figures.condition(record)),
        *early,
    ]
    begun = str(record.attempts[0].get("time", ""))[:19].replace("T", " ") if record.attempts else ""
    return rendered(
        "body.html",
        name=record.folder.name,
        list=listed,
        status=tables.status_of(record),
        program=record.config.get("program") or record.summary.get("graph") or "run",
        begun=begun,
        error=record.summary.get("error") if record.ended else None,
        facts=tables.headline(record),
        figures=[(id_, heading, [drawn(plot) for plot in plots]) for id_, heading, plots in parts],
        marked=any(plot.marks for _, _, plots in parts for plot in plots),
        verdict=verdict,
        alerts=tables.alerts(record),
        warnings=tables.warnings(record),
        shares=tables.time_shares(record),
        states=tables.STATES,
        ends=tables.ends(record),
        ledger=tables.ledger(record),
        balanced=record.summary.get("ledger_balanced", True),
        sources=tables.sources(record),
        errors=[_with_episode(kind) for kind in record.errors[:MOST_KINDS]],
        episodes=episodes.shown(record),
        by_token=bool(record.samples),
        far=episodes.FAR,
        settings=tables.settings(record),
        environment=tables.environment(record),
        starts=tables.starts(record),
    )


def list_of_runs(folder: Path, runs: Sequence[Path]) -> str:
    """What the page of a folder of runs holds, the newest first."""
    told = sorted((_in_brief(run) for run in runs), key=lambda run: str(run["begun"]), reverse=True)
    return rendered("runs.html", folder=folder.name or str(folder), runs=told)


def rendered(template: str, **values: Any) -> str:
    """What a template of the folder ``template`` gives, all values escaped in it.

    Args:
        template: name of its file.
        values: by the names that it has for them, every one of them.
    """
    return _environment().get_template(template).render(values)


def _in_brief(run: Path) -> dict[str, Any]:
    summary, attempts = read_object(run / SUMMARY), list(read_rows(run / ATTEMPTS))
    record = RunRecord(run, read_object(run / "config.json"), summary, attempts)
    scores = [number(summary.get(f"heldout_{when}")) for when in ("before", "after")]
    before, after = ("" if score is None else percent(score) for score in scores)
    return {
        "name": run.name, "program": record.config.get("program", ""), "status": tables.status_of(record),
        "steps": summary.get("steps", ""), "before": before, "after": after,
        "begun": str(attempts[0].get("time", ""))[:19].replace("T", " ") if attempts else "",
    }  # fmt: skip


def _with_episode(kind: ErrorKind) -> dict[str, Any]:
    shown = None if kind.transcript is None else episodes.of_transcript(kind.transcript)
    return {"where": kind.where.replace("_", " "), "text": kind.text, "count": kind.count, "traceback": kind.traceback,
            "episode": shown}  # fmt: skip


@functools.cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    made.filters["percent"] = percent
    made.globals["episode"] = _episode
    return made


def _episode(one: Shown) -> Markup:
    return Markup(rendered("episode.html", one=one))
