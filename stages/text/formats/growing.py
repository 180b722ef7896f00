"""A turn of text that is still growing, and reading from it that waits for more where it must. Pure.

A reader is a generator that yields where what it has seen decides nothing yet. It looks for fixed marks only and never asks how
much there is, so that a turn reads the same however it was cut into pieces. Nothing is searched twice, but for the length of
the longest mark.
"""

import re
from collections.abc import Generator, Iterable
from typing import TypeVar

T = TypeVar("T")
Reading = Generator[None, None, T]
"""Yields while it waits for more text, then returns."""

_AT_ONCE = 16_384
"""Characters up to which each piece is joined at once. Beyond, pieces are joined by the 64th: copying stays linear."""
_NO_SPACE = re.compile(r"\S")
_IN_STRING = re.compile(r'["\\\x00-\x1f]')
_IN_JSON = re.compile(r'["{}\[\]]|[^\s\w.,:+-]')


class Marks:
    """Fixed texts that are looked for together. None may lie inside another."""

    def __init__(self, marks: Iterable[str]):
        listed = tuple(marks)
        self.pattern = re.compile("|".join(map(re.escape, listed)))
        self.longest = max(map(len, listed))


class GrowingText:
    """The text so far, and whether that is all."""

    def __init__(self) -> None:
        self.text = ""
        self.closed = False
        self._pending: list[str] = []
        self._num_pending = 0

    def add(self, text: str) -> bool:
        """Append; True where there is something new to read."""
        self._pending.append(text)
        self._num_pending += len(text)
        if len(self.text) > _AT_ONCE and self._num_pending * 64 < len(self.text):
            return False
        self._join()
        return True

    def close(self) -> None:
        """No more will come."""
        self._join()
        self.closed = True

    def find(self, marks: Marks, place: int) -> Reading[tuple[int, str] | None]:
        """Where the first of the marks begins at or behind a place, and which; ``None`` where there is none to the end."""
        at = place
        while True:
            match = marks.pattern.search(self.text, at)
            if match is not None:
                return match.start(), match.group()
            if self.closed:
                return None
            at = max(place, len(self.text) - marks.longest + 1)
            yield

    def after(self, marks: Marks, place: int) -> Reading[int]:
        """Behind the first of the marks, or the end of the text."""
        found = yield from self.find(marks, place)
        return len(self.text) if found is None else found[0] + len(found[1])

    def rest(self) -> Reading[int]:
        """The end of the text, once it is there."""
        while not self.closed:
            yield
        return len(self.text)

    def past_space(self, place: int) -> Reading[int]:
        """The first place from ``place`` on that is no white space, or the end of the text."""
        at = place
        while True:
            match = _NO_SPACE.search(self.text, at)
            if match is not None:
                return match.start()
            if self.closed:
                return len(self.text)
            at = max(place, len(self.text))
            yield

    def peek(self, place: int, count: int) -> Reading[str]:
        """The next ``count`` characters; fewer at the end of the text only."""
        while len(self.text) < place + count and not self.closed:
            yield
        return self.text[place : place + count]

    def json_end(self, place: int) -> Reading[int | None]:
        """End of the JSON object, array or string that begins at a place.

        Brackets are counted, not matched: what lies between may still be no JSON.

        Returns:
            The end; ``None`` where none begins here, the text ends before, or a character comes that JSON cannot have there.
        """
        if (yield from self.peek(place, 1)) not in ("{", "[", '"'):
            return None
        depth, at, in_string = 0, place, False
        while True:
            match = (_IN_STRING if in_string else _IN_JSON).search(self.text, at)
            mark = "" if match is None else match.group()
            at = len(self.text) if match is None else match.end()
            if mark == "" or (mark == "\\" and at == len(self.text)):
                if self.closed:
                    return None
                at -= len(mark)
                yield
            elif mark == '"':
                in_string = not in_string
            elif in_string and mark == "\\":
                at += 1
            elif mark in "{[" and not in_string:
                depth += 1
            elif mark in "}]" and not in_string:
                depth -= 1
            else:
                return None
            if depth == 0 and not in_string and mark in ('"', "}", "]"):
                return at

    def _join(self) -> None:
        self.text = "".join([self.text, *self._pending])
        self._pending, self._num_pending = [], 0
