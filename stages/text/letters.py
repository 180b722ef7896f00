"""Marks of a tokenizer that somebody spells out in a text: they stay the letters they are. Pure.

A mark is an added token with a meaning: one that ends a turn, begins one, opens a call or reasoning. Whoever writes a task, a
page that a tool reads, or a demonstration can spell its name; only a template may write the token. Texts pass through a Jinja
template between ``spell`` and ``parts``, so what tells them apart is put inside the spelt name. Called by ``rendering.py``.
"""

import re
from collections.abc import Iterable, Iterator

_SPLIT = "\ue000"
"""Stands behind the first letter of a spelt mark. For private use: no text means anything by it."""
_ESCAPED = r"\ue000"
"""The same where a template writes values as JSON in ASCII, or as Python."""


class Letters:
    """The spelt forms of some marks."""

    def __init__(self, marks: Iterable[str]):
        """Keep them.

        Args:
            marks: of two letters or more each.
        """
        listed = sorted(marks, key=len, reverse=True)
        inside = f"(?:{_SPLIT}|{re.escape(_ESCAPED)})"
        spelt = [f"{re.escape(mark[0])}{inside}{re.escape(mark[1:])}" for mark in listed]
        self.pattern = re.compile("|".join(map(re.escape, listed)) or r"(?!)")
        self._spelt = re.compile(f"({'|'.join([*spelt, _SPLIT])})")

    def spell(self, text: str) -> str:
        """The text, in which every mark is a spelt one."""
        return self.pattern.sub(lambda match: f"{match.group()[0]}{_SPLIT}{match.group()[1:]}", text.replace(_SPLIT, ""))

    def parts(self, text: str) -> Iterator[tuple[int, str]]:
        """Parts of the text, to be encoded apart, each with its place: no spelt mark is whole in one."""
        place = 0
        for number, part in enumerate(self._spelt.split(text) if _SPLIT in text or _ESCAPED in text else [text]):
            yield from self._apart(place, plain(part).replace(_ESCAPED, "")) if number % 2 else [(place, part)]
            place += len(part)

    def _apart(self, place: int, text: str) -> Iterator[tuple[int, str]]:
        while (match := self.pattern.search(text)) is not None:
            yield place, text[: match.start() + 1]
            text = text[match.start() + 1 :]
        yield place, text


def plain(text: str) -> str:
    """The text as anybody would read it, with nothing inside its spelt marks."""
    return text.replace(_SPLIT, "")


def slice_of(whole: str, part: str) -> str | None:
    """What stands in ``whole``, spelt marks and all, where its plain text has ``part``; ``None`` where it has not."""
    start = plain(whole).find(part)
    if start < 0 or not part:
        return None if start < 0 else ""
    places = [place for place, letter in enumerate(whole) if letter != _SPLIT]
    return whole[places[start] : places[start + len(part) - 1] + 1]
