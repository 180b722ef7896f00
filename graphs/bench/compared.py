"""Two folders of findings side by side: each claim of both, and how many times the one is the other."""

import textwrap
from collections.abc import Iterator, Sequence

from graphs.bench import shown
from graphs.bench.experiment import Claim
from graphs.bench.kept import Kept
from graphs.verdict.compared import differing

WIDTH = 80
_CELL, _GAP = 13, 2
_WHAT = WIDTH - 3 * (_CELL + _GAP)


def compared(one: Sequence[Kept], other: Sequence[Kept], names: tuple[str, str]) -> str:
    """What came out of the same experiments twice, as lines of 80 columns.

    Args:
        one: findings.
        other: findings to be set beside them.
        names: of both.
    """
    others = {kept.name: kept for kept in other}
    lines: list[str] = []
    for kept in one:
        if kept.name in others:
            lines += [*_experiment(kept, others[kept.name], names), ""]
    known = {kept.name for kept in one}
    only = [
        (name, sorted(mine - theirs)) for name, mine, theirs in ((names[0], known, set(others)), (names[1], set(others), known))
    ]
    lines += [f"only in {name}: {', '.join(missing)}" for name, missing in only if missing]
    return "\n".join([*lines, "Ratios are of the second over the first. Times of two machines, or of a busy one, tell little."])


def _experiment(one: Kept, other: Kept, names: tuple[str, str]) -> Iterator[str]:
    yield f"== {one.name} =="
    settings = list(differing(one.settings, other.settings))
    if one.machine != other.machine:
        yield from _wrapped(f"other machine: {_machine(one)}; {_machine(other)}")
    yield from (_wrapped(f"other setting: {each.path}: {each.one}; {each.other}")[0] for each in settings)
    yield _row("claim", names[0][-_CELL:], names[1][-_CELL:], "ratio")
    pairs = _paired(one.findings.claims, other.findings.claims)
    for mine, theirs in pairs:
        yield from _claim(mine, theirs)
    yield _row("seconds it took", shown.cell(one.seconds), shown.cell(other.seconds), _ratio(one.seconds, other.seconds))


def _machine(kept: Kept) -> str:
    return dict(shown.circumstances(kept))["machine"]


def _paired(one: Sequence[Claim], other: Sequence[Claim]) -> Iterator[tuple[Claim | None, Claim | None]]:
    """Claims of the same words, the first with the first and so on; then those that the other alone has."""
    left = list(other)
    for mine in one:
        theirs = next((claim for claim in left if claim.what == mine.what), None)
        if theirs is not None:
            left.remove(theirs)
        yield mine, theirs
    yield from ((None, theirs) for theirs in left)


def _claim(mine: Claim | None, theirs: Claim | None) -> Iterator[str]:
    claim = mine or theirs
    assert claim is not None
    told = ["" if each is None else shown.claim(each).got for each in (mine, theirs)]
    if max(map(len, told)) > _CELL:
        told = ["", "the same" if told[0] == told[1] else "another"] if all(told) else [text[:_CELL] for text in told]
    what = textwrap.wrap(claim.what, _WHAT - _GAP, break_on_hyphens=False) or [""]
    ratio = _ratio(mine.got, theirs.got) if mine is not None and theirs is not None else ""
    yield from what[:-1]
    yield _row(what[-1], told[0], told[1], ratio)
    if mine is not None and theirs is not None and mine.holds != theirs.holds:
        yield f"  {shown.MARKS[mine.holds]} in the first, {shown.MARKS[theirs.holds]} in the second"


def _ratio(one: object, other: object) -> str:
    numbers = [value for value in (one, other) if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < 2 or not numbers[0]:
        return ""
    return shown.cell(float(numbers[1] / numbers[0]))


def _row(what: str, *cells: str) -> str:
    return (f"{what:<{_WHAT}}" + "".join(f"{'':<{_GAP}}{cell:>{_CELL}}" for cell in cells)).rstrip()


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
