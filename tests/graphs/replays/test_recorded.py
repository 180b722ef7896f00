"""The groups that a run trained, as they come out of its journal."""

import msgspec
import numpy as np
import pytest

from flow.saving import Journal, Made, RecordedSteps, Step
from graphs.replays.recorded import RecordedGroups
from stages.arrays import ARRAYS
from stages.records import Episode, Group, Status, Task


def group(birth: int, reward: float) -> Group:
    ids = np.arange(birth, birth + 4, dtype=np.int32)
    nothing = np.full(4, np.nan, np.float32)
    episode = Episode(
        Task(str(birth), "1+1"), birth, 0, 0, ids, ids > birth, nothing, np.zeros(4, np.int32), (), (), Status.FINISHED,
        reward=reward,
    )  # fmt: skip
    return Group(birth, (episode,))


def test_the_source_says_what_comes_before_it_gives_it_to_the_bit_and_ends(tmp_path):
    encode = msgspec.msgpack.Encoder(enc_hook=ARRAYS.write).encode
    with Journal(tmp_path, record=True) as journal:
        for birth in (0, 1):
            value = encode(group(birth, 0.1 * birth))
            journal.append(
                Made("rl", "rewards", (birth,), 0, birth, None, 0, 0, None, 0, (None, None), "plain", "", "", (value,))
            )
            journal.append(Step("rl", "trainer", birth + 1, (((birth,), birth, 0),)))
    recorded = RecordedSteps(tmp_path, "rl", "rewards", "trainer")
    told: list[tuple[int, int | None]] = []
    source = RecordedGroups(recorded, recorded.steps, lambda birth, lag: told.append((birth, lag)))
    assert source.draw().birth == 0
    assert told == [(0, 0)]
    drawn, made = source.draw(), group(1, 0.1)
    assert (drawn.birth, drawn.episodes[0].reward) == (1, 0.1)
    for name in ("ids", "mask", "logprobs", "versions"):
        got, given = getattr(drawn.episodes[0], name), getattr(made.episodes[0], name)
        assert (got.dtype, got.tobytes()) == (given.dtype, given.tobytes())
    with pytest.raises(StopIteration):
        source.draw()
    assert told == [(0, 0), (1, 1)]
