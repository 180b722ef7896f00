"""Tracks for things that overlap: each open thing holds a lane of its own, and lanes are reused. Not thread-safe: one owner.

Perfetto pairs an end with the latest begin of its track, so two overlapping things on one track would swap their ends and
show wrong lengths. A lane is the lowest free one: their number is the most that was ever open at once.
"""

import heapq

from ._recorder import Recorder


class Lanes:
    """A growing row of tracks, ``<name> 0``, ``<name> 1`` and so on, under one parent."""

    def __init__(self, recorder: Recorder, name: str, parent: int | None = None) -> None:
        """Declares nothing yet: the first ``take`` does."""
        self._recorder = recorder
        self._name = name
        self._parent = parent
        self._free: list[int] = []
        self._tracks: list[int] = []
        self._lane_of: dict[int, int] = {}

    def take(self) -> int:
        """A track nobody else holds, until ``give``."""
        lane = heapq.heappop(self._free) if self._free else self._declare()
        track = self._tracks[lane]
        self._lane_of[track] = lane
        return track

    def give(self, track: int) -> None:
        """The track may be taken again. Its slices must be closed."""
        lane = self._lane_of.pop(track, None)
        assert lane is not None, f"track {track} is not held"
        heapq.heappush(self._free, lane)

    def _declare(self) -> int:
        lane = len(self._tracks)
        self._tracks.append(self._recorder.track(f"{self._name} {lane}", self._parent, rank=lane))
        return lane
