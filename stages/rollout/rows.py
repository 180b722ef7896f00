"""What each row of the caches holds, and which row serves a request best. Bookkeeping only: no device, no requests.

The first rows are the slots, in which requests decode; the others are the shelf, where the caches of idle sessions lie while
their slots serve others. A row holds the tokens of at most one session. Of its tokens the first ``cached`` have keys and values
on the device, and of these the first ``shareable`` were computed by reading in, under the weights in force: what reading in
computes for a token depends on nothing but the tokens before it, to the bit, so another session may take a copy. What decoding
computed differs in the last bits and is its owner's alone.

Axes: R rows, T positions of a row.
"""

import numpy as np


class Rows:
    """Slots and shelf.

    Args:
        slots: rows in which requests decode.
        kept: rows of the shelf.
        length: positions of a row.
    """

    def __init__(self, slots: int, kept: int, length: int):
        self.slots = slots
        self.evictions = self.evicted_tokens = 0
        self.ids_RT = np.zeros((slots + kept, length), np.int32)
        self.cached_R = np.zeros(slots + kept, np.int32)
        self.shareable_R = np.zeros(slots + kept, np.int32)
        self._owners: list[str | None] = [None] * (slots + kept)
        self._used = [0] * (slots + kept)
        self._tick = 0

    def row_of(self, session: str) -> int | None:
        """Where a session's tokens lie."""
        return self._owners.index(session) if session in self._owners else None

    def touch(self, row: int) -> None:
        """The row is in use now."""
        self._tick += 1
        self._used[row] = self._tick

    def own(self, row: int, session: str) -> None:
        """The row's tokens belong to a session from now on; of what was there only what may be shared is left."""
        self._owners[row] = session
        self.keep(row, int(self.shareable_R[row]))
        self.touch(row)

    def disown(self, session: str) -> None:
        """The session will not come back. Its tokens stay until something is put in their place."""
        row = self.row_of(session)
        if row is not None:
            self._owners[row] = None

    def keep(self, row: int, tokens: int) -> None:
        """Only the first tokens of the row still stand."""
        self.cached_R[row] = min(int(self.cached_R[row]), tokens)
        self.shareable_R[row] = min(int(self.shareable_R[row]), tokens)

    def read_in(self, row: int, tokens: int) -> None:
        """Reading in has computed more tokens of the row."""
        if self.shareable_R[row] == self.cached_R[row]:
            self.shareable_R[row] += tokens
        self.cached_R[row] += tokens

    def forget(self) -> None:
        """Nothing cached is valid any more."""
        self.cached_R[:] = 0
        self.shareable_R[:] = 0

    def stop_sharing(self) -> None:
        """What is cached stays with its owners, and is no longer what reading in would compute."""
        self.shareable_R[:] = 0

    def free_slot(self, idle: list[int]) -> int:
        """A slot for somebody new: nobody's first, then the one idle longest.

        Args:
            idle: slots without a request, at least one.
        """
        return min(idle, key=self._by_need)

    def place_for(self, slot: int) -> int | None:
        """The row of the shelf to exchange a slot's content with before it goes to somebody new.

        ``None`` where nobody owns the content, or without a shelf. Who loses a cache by it is counted as evicted.
        """
        if self._owners[slot] is None:
            return None
        place = min(range(self.slots, len(self._used)), key=self._by_need, default=None)
        lost = slot if place is None else place
        if self._owners[lost] is not None:
            self.evictions += 1
            self.evicted_tokens += int(self.cached_R[lost])
        return place

    def exchange(self, slot: int, place: int) -> None:
        """Two rows have changed places."""
        pair, turned = [slot, place], [place, slot]
        for values in (self.ids_RT, self.cached_R, self.shareable_R):
            values[pair] = values[turned]
        for entries in (self._owners, self._used):
            entries[slot], entries[place] = entries[place], entries[slot]

    def copy(self, source: int, slot: int, tokens: int) -> None:
        """The first tokens of a row lie in a slot too, in place of what was there."""
        self.ids_RT[slot, :tokens] = self.ids_RT[source, :tokens]
        self.cached_R[slot] = self.shareable_R[slot] = tokens
        self.touch(source)

    def best_prefix(self, ids_T: np.ndarray, but: int) -> tuple[int, int]:
        """The row that has the longest beginning of a context to share, and how many tokens that is.

        Rows that share no more than is cached already are not looked at, this is asked many times a step: then it is 0 tokens.

        Args:
            ids_T: the tokens wanted, at least one.
            but: the row that wants them.
        """
        rows = np.flatnonzero(self.shareable_R > self.cached_R[but])
        rows = rows[rows != but]
        if not len(rows):
            return but, 0
        num = min(len(ids_T), int(self.shareable_R[rows].max()))
        common = np.minimum(_common(self.ids_RT[rows, :num], ids_T[:num]), self.shareable_R[rows])
        best = int(np.argmax(common))
        return int(rows[best]), int(common[best])

    def _by_need(self, row: int) -> tuple[bool, int]:
        return self._owners[row] is not None, self._used[row]


def common_prefix(one_T: np.ndarray, other_T: np.ndarray) -> int:
    """How many tokens two contexts have in common at their beginning."""
    num = min(len(one_T), len(other_T))
    return int(_common(one_T[None, :num], other_T[:num])[0]) if num else 0


def _common(rows_RT: np.ndarray, ids_T: np.ndarray) -> np.ndarray:
    differ_RT = rows_RT != ids_T
    first_R = differ_RT.argmax(axis=1)
    return np.where(differ_RT[np.arange(len(first_R)), first_R], first_R, len(ids_T))
