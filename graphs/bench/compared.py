"""Two folders of findings side by side: each claim of both that came out otherwise, and how many times the one is the other."""

import textwrap
from collections.abc import Iterator, Sequence

from graphs.bench import shown
from graphs.bench.experiment import Claim
from graphs.bench.kept import Kept
from graphs.verdict.compared import differing

WIDTH = 80
_CELL, _GAP = 11, 2
_WHAT = WIDTH - 3 * (_CELL + _GAP)
_LAST = (
    "Ratios are of the second over the first. Another machine, other settings or other work on it change more than code does."
)


def compared(one: Sequence[Kept], other: Sequence[Kept], names: tuple[str, str]) -> str:
    """What came out of the same experiments twice, as lines of 80 columns.

    Args:
        one: findings.
        other: findings to be set beside them.
        names: of both.
    """
    mine, theirs = ({kept.name: kept for kept in found} for found in (one, other))
    lines = [f"first   {names[0]}", f"second  {names[1]}"]
    for name in mine:
        if name in theirs:
            lines += ["", *_experiment(mine[name], theirs[name])]
    lines.append("")
    for where, only in (("first", mine.keys() - theirs.keys()), ("second", theirs.keys() - mine.keys())):
        lines += _wrapped(f"only in the {where}: {', '.join(sorted(only))}") if only else []
    return "\n".join([*lines, *_wrapped(_LAST)])


def _experiment(one: Kept, other: Kept) -> Iterator[str]:
    yield f"== {one.name} =="
    if one.machine != other.machine:
        yield from _wrapped(f"another machine: {shown.machine(one)}; then {shown.machine(other)}")
    for setting in differing(one.settings, other.settings):
        yield from _wrapped(f"another setting: {setting.path}: {setting.one}; then {setting.other}")
    pairs = list(_paired(one.findings.claims, other.findings.claims))
    changed = [(mine, theirs) for mine, theirs in pairs if mine is None or theirs is None or not _same(mine, theirs)]
    yield _row("", "first", "second", "ratio")
    for mine, theirs in changed:
        yield from _claim(mine, theirs)
    yield _row("seconds it took", shown.cell(one.seconds), shown.cell(other.seconds), _ratio(one.seconds, other.seconds))
    yield f"{len(pairs) - len(changed)} of {len(pairs)} claims came out the same"


def _paired(one: Sequence[Claim], other: Sequence[Claim]) -> Iterator[tuple[Claim | None, Claim | None]]:
    """Claims of the same words, the first with the first and so on; then those that the other alone has."""
    left = list(other)
    for mine in one:
        theirs = next((claim for claim in left if claim.what == mine.what), None)
        if theirs is not None:
            left.remove(theirs)
        yield mine, theirs
    yield from ((None, theirs) for theirs in left)


def _same(mine: Claim, theirs: Claim) -> bool:
    """By what they are written as, since a number that is none equals nothing."""
    return repr(mine.got) == repr(theirs.got) and mine.holds == theirs.holds


def _claim(mine: Claim | None, theirs: Claim | None) -> Iterator[str]:
    claims = [claim for claim in (mine, theirs) if claim is not None]
    told = ["" if claim is None else shown.claim(claim).got for claim in (mine, theirs)]
    long = max(map(len, told)) > _CELL
    cells = [text and "below" for text in told] if long else told
    *what, last = textwrap.wrap(claims[0].what, _WHAT - _GAP, break_on_hyphens=False) or [""]
    yield from what
    yield _row(last, *cells, "" if len(claims) < 2 else _ratio(claims[0].got, claims[1].got))
    if long:
        yield from (line for text in told if text for line in _wrapped(f"  {text}"))
    if mine is not None and theirs is not None and mine.holds != theirs.holds:
        yield f"  {shown.MARKS[mine.holds]} in the first, {shown.MARKS[theirs.holds]} in the second"


def _ratio(one: object, other: object) -> str:
    numbers = [value for value in (one, other) if isinstance(value, int | float) and not isinstance(value, bool)]
    return shown.cell(float(numbers[1] / numbers[0])) if len(numbers) == 2 and numbers[0] else ""


def _row(what: str, *cells: str) -> str:
    return (f"{what:<{_WHAT}}" + "".join(f"{'':<{_GAP}}{cell:>{_CELL}}" for cell in cells)).rstrip()


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
