"""A plot as a file of its own: title, legend, notes and colours are in the picture, which is legible wherever it is shown.

It has a ground of its own, so that the page around it may be light or dark; where whoever shows it says which, it follows.
"""

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from markupsafe import Markup

from graphs.report.plots import HEIGHT, WIDTH, Drawn, Plot, drawn

_MARGIN, _SCALE = 12, 1.4
_TITLE, _SMALL, _KEY = 14, 11, 22
_ROOM = {"title": 0.66, "small": 0.6}
"""Width of a character over the size of its font, in a wide font."""
_TEXTS = """\
svg { font-family: system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif }
svg .title { font-size: 14px; font-weight: 600; fill: var(--text) } svg .small { font-size: 11px } .ground { fill: var(--card) }
"""
_FILE = Markup("""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" width="{width}" height="{height}" role="img" aria-label="{label}">
<style>
{style}</style>
<rect class="ground" width="{w}" height="{h}" rx="8"/>
{body}</svg>
""")


def plot_style() -> str:
    """The style of plots and their colours, light and dark."""
    return Path(__file__).with_name("template").joinpath("plot.css").read_text(encoding="utf-8")


def picture(plot: Plot) -> str:
    """An SVG file of a plot that is not empty. The same plot gives the same bytes."""
    body, width, height = Markup(""), WIDTH + 2 * _MARGIN, _MARGIN
    for part, size in _parts(drawn(plot)):
        body += Markup('<g transform="translate({} {})">{}</g>\n').format(_MARGIN, height, part)
        height += size
    height += _MARGIN - 4
    return str(
        _FILE.format(
            w=width, h=height, width=round(width * _SCALE), height=round(height * _SCALE),
            label=f"{plot.title}: {plot.meaning}", style=Markup(plot_style() + _TEXTS), body=body,
        )
    )  # fmt: skip


def _parts(made: Drawn) -> Iterator[tuple[Markup, int]]:
    """What stands below one another, each with its height."""
    yield _lines(made.title, "title", _TITLE)
    yield _lines(made.meaning, "small", _SMALL)
    if len(made.legend) > 1:
        yield _legend(made.legend)
    yield made.inside, HEIGHT + 4
    for note in made.notes:
        yield _lines(note, "small", _SMALL)


def _lines(text: str, kind: str, size: int) -> tuple[Markup, int]:
    lines, row = textwrap.wrap(text, int(WIDTH / (size * _ROOM[kind]))), size + 4
    made = Markup("").join(
        Markup('<text class="{}" y="{}">{}</text>').format(kind, at * row + size, line) for at, line in enumerate(lines)
    )
    return made, len(lines) * row + 3


def _legend(entries: Sequence[tuple[str, int, str]]) -> tuple[Markup, int]:
    """Entries side by side, on as many rows as they take."""
    made, left, y = Markup(""), 0.0, 9
    for label, color, look in entries:
        room = _KEY + len(label) * _SMALL * _ROOM["small"] + 16
        if left and left + room > WIDTH:
            left, y = 0.0, y + 16
        made += _key(round(left, 1), y, color, look)
        made += Markup('<text class="small" x="{}" y="{}">{}</text>').format(round(left + _KEY, 1), y + 4, label)
        left += room
    return made, y + 12


def _key(x: float, y: int, color: int, look: str) -> Markup:
    if look == "block":
        return Markup('<rect class="layer c{}" x="{}" y="{}" width="16" height="10" rx="2"/>').format(color, x, y - 5)
    return Markup('<path class="line c{} {}" d="M{} {}h16"/>').format(color, look, x, y)
