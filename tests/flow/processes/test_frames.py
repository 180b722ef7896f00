"""Frames come out as they went in, however the stream cuts them."""

import itertools
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from flow._processes.frames import Assembler, framed

BODIES = {size: bytes(index % 251 for index in range(size)) for size in (0, 1, 100, 65_000, 65_536, 65_537, 200_000)}
"""Around the size from which a frame has a buffer of its own."""


def assembled(stream: bytes, pieces: Iterable[int]) -> list[tuple[bytes, bytes]]:
    assembler, start = Assembler(), 0
    found: list[tuple[memoryview, memoryview]] = []
    for piece in pieces:
        space = assembler.space()
        size = min(len(space), piece, len(stream) - start)
        space[:size] = stream[start : start + size]
        start += size
        found += assembler.filled(size)
        if start == len(stream):
            break
    # Copied only now, so that a frame that those after it overwrite is seen.
    return [(bytes(header), bytes(body)) for header, body in found]


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.binary(max_size=9), st.sampled_from(sorted(BODIES))), max_size=6),
    st.lists(st.sampled_from([1, 11, 12, 13, 5_000, 65_536, 1_000_000]), min_size=1, max_size=4),
)
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(sizes, pieces):
    frames = [(header, BODIES[size]) for header, size in sizes]
    stream = b"".join(bytes(chunk) for header, body in frames for chunk in framed(header, body))
    assert assembled(stream, [1] * 40 + pieces + [100_000] * (len(stream) // 50_000 + 20)) == frames


def test_one_byte_at_a_time_is_enough():
    frames = [(b"a", b""), (b"", b"body"), (b"head", b"er")]
    stream = b"".join(bytes(chunk) for header, body in frames for chunk in framed(header, body))
    assert assembled(stream, itertools.repeat(1)) == frames


def test_a_large_body_is_not_copied_when_it_is_framed():
    body = bytes(100_000)
    assert framed(b"header", body)[1].obj is body
