"""Kept findings as one HTML page that needs no network, in the style of the report of a run."""

import re
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup, escape

from graphs.bench import shown
from graphs.bench.kept import Kept
from graphs.report.page import page, rendered
from graphs.report.plots import drawn

_CODE = re.compile(r"`([^`]+)`")


def write_web(found: Sequence[Kept], file: Path) -> Path:
    """Write the page, whole or not at all, and give it.

    Args:
        found: in the order in which they are shown.
        file: to be written.

    Raises:
        OSError: it cannot be written.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    part.write_text(page("The benchmark", body(found)), encoding="utf-8")
    return part.replace(file)


def body(found: Sequence[Kept]) -> str:
    """What the page holds.

    Args:
        found: in the order in which they are shown.
    """
    claims = [one for kept in found for one in kept.findings.claims]
    return rendered(
        "bench.html",
        counted=shown.counted(claims),
        failing=[(kept.name, shown.claim(one)) for kept in found for one in kept.findings.claims if one.holds is False],
        experiments=[_experiment(kept) for kept in found],
        said=said,
    )


def said(words: str) -> Markup:
    """Words as they are, but for what stands between backticks, which is code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(words))))


def _experiment(kept: Kept) -> dict[str, object]:
    (_, command), *facts = shown.circumstances(kept)
    return {
        "name": kept.name,
        "title": shown.sentence(kept.title),
        "question": kept.question,
        "answer": kept.findings.answer,
        "short": kept.short,
        "holds": kept.findings.holds,
        "counted": shown.counted(kept.findings.claims),
        "claims": [shown.claim(one) for one in kept.findings.claims],
        "tables": [shown.table(one) for one in kept.findings.tables],
        "plots": [drawn(plot) for plot in shown.plots(kept)],
        "notes": kept.findings.notes,
        "command": command,
        "facts": facts,
    }
