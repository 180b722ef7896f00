"""Preferences in JSONL files, ``{"id": ..., "prompt": [...], "chosen": [...], "rejected": [...]}`` a line, and their source.

The three are lists of messages as ``examples.py`` has them. How they become tokens is for ``stages/text/preferences.py``.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from stages.records import Example, Message, Preference
from stages.tasks.examples import ExampleRow, MessageRow, to_example, to_row
from stages.tasks.identity import check_same_set
from stages.tasks.rows import read_rows
from stages.tasks.source import Endless, EndlessState


class PreferenceRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a file of preferences."""

    id: str
    prompt: tuple[MessageRow, ...]
    chosen: tuple[MessageRow, ...]
    rejected: tuple[MessageRow, ...]


def read_preferences(path: str | Path, *, min_rows: int = 1) -> tuple[Preference, ...]:
    """Every preference of a file, in its order.

    Args:
        path: the file.
        min_rows: fewer are refused.

    Raises:
        RowError: rows are broken or too few; all of them are told.
        FileNotFoundError: there is no such file.
    """
    return read_rows(path, PreferenceRow, _preference, lambda preference: preference.id, min_rows=min_rows)


def write_preferences(path: str | Path, preferences: Iterable[Preference]) -> None:
    """Write preferences so that ``read_preferences`` gives them back.

    Raises:
        ValueError: a call is a bad call, which cannot be written.
    """
    Path(path).write_bytes(b"".join(msgspec.json.encode(_row(preference)) + b"\n" for preference in preferences))


class Preferences:
    """A source of preferences: draws one after another for ever, epoch after epoch. One integer says where it is.

    Args:
        preferences: what is drawn from.
        seed: of the order.

    Raises:
        ValueError: there are none.
    """

    def __init__(self, preferences: Sequence[Preference], seed: int) -> None:
        if not preferences:
            raise ValueError("expected at least one preference, got none, in Preferences; check the file of preferences")
        self._preferences, self._drawn = Endless(preferences, seed), 0

    def draw(self) -> Preference:
        """The next preference."""
        self._drawn += 1
        return self._preferences[self._drawn - 1]

    def state(self) -> EndlessState:
        """Number of preferences drawn."""
        return EndlessState(self._drawn, self._preferences.identity)

    def restore(self, state: EndlessState) -> None:
        """Go on after this many preferences.

        Raises:
            ValueError: it is a place in another set, or in another order of it.
        """
        check_same_set(state.of, self._preferences.identity, "Preferences.restore")
        self._drawn = state.drawn


def _preference(row: PreferenceRow) -> Preference:
    sides: dict[str, tuple[Message, ...]] = {}
    for name, reply in (("chosen", row.chosen), ("rejected", row.rejected)):
        if not reply or reply[0].role != "assistant":
            raise ValueError(f"{name}: expected a reply that begins with an assistant message, got {[m.role for m in reply]}")
        try:
            sides[name] = to_example(ExampleRow(row.id, row.prompt + reply)).messages
        except ValueError as error:
            raise ValueError(f"prompt and {name}: {error}") from error
    if row.chosen == row.rejected:
        raise ValueError("rejected: expected another reply than the chosen one, got the same")
    start = len(row.prompt)
    return Preference(row.id, sides["chosen"][:start], sides["chosen"][start:], sides["rejected"][start:])


def _row(preference: Preference) -> PreferenceRow:
    prompt, chosen, rejected = (
        to_row(Example(preference.id, messages)).messages
        for messages in (preference.prompt, preference.chosen, preference.rejected)
    )
    return PreferenceRow(preference.id, prompt, chosen, rejected)
