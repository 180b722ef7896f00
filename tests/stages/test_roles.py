"""What a role tells of itself, and which compilations are whose: with JAX's own compiler, read back from the file."""

import itertools
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from flow.trace import PerfettoWriter, Slice, Trace, read_trace, recording
from stages.compilations import COUNTER, Compilations
from stages.roles import Role, compiling, role_span

pytestmark = pytest.mark.slow  # They compile.


@contextmanager
def recorded(path: Path) -> Generator[list[Trace]]:
    """A place for the trace of what is done inside."""
    trace: list[Trace] = []
    with PerfettoWriter(path) as recorder, recording(recorder), Compilations(recorder):
        yield trace
    trace.append(read_trace(path))


def on(trace: Trace, track: str) -> list[Slice]:
    """The slices of a track, by the time they were begun."""
    return [each for each in trace.slices if trace.tracks[each.track].name == track]


def compiled_anew(value: float) -> None:
    """A program that was never compiled before."""
    jax.block_until_ready(jax.jit(lambda number: number * value)(jnp.float32(1.0)))


def test_nothing_is_recorded_where_nobody_records() -> None:
    role = Role("trainer")
    with role.span("gradient", 3), compiling("gradient", "8x64"), role_span("transfer"):
        role.count("rate", 1.0)
    assert role.recorder is None


def test_a_compilation_that_was_announced_is_one_slice_and_any_other_one_of_the_role_it_held_up(tmp_path: Path) -> None:
    jnp.float32(1.0)
    with recorded(tmp_path / "trace") as traces:
        role = Role("trainer")
        with role.span("open"), compiling("gradient", "8x64"):
            compiled_anew(2.5)
        with role.span("gradient", 7, targets=9):
            compiled_anew(3.5)
    opened, announced, gradient, unexpected = on(traces[0], "trainer")
    assert [each.name for each in (opened, announced, gradient, unexpected)] == ["open", "compile", "gradient", "compile"]
    assert announced.args == {"program": "gradient", "shape": "8x64"}
    assert gradient.args == {"step": 7, "targets": 9}
    assert "lambda" in unexpected.args["program"]
    assert (announced.depth, unexpected.depth) == (1, 1)
    assert gradient.start_ns <= unexpected.start_ns < unexpected.end_ns <= gradient.end_ns


def test_compilations_of_nobody_have_tracks_of_their_own_and_all_are_counted(tmp_path: Path) -> None:
    """Three threads compile at once: their slices do not share a track where they overlap."""
    jnp.float32(1.0)
    with recorded(tmp_path / "trace") as traces:
        threads = [threading.Thread(target=compiled_anew, args=(number + 10.5,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with Role("trainer").span("open"), compiling("gradient"):
            compiled_anew(20.5)
    trace = traces[0]
    slices = [each for name in ("compile", "compile 1", "compile 2") for each in on(trace, name)]
    assert len([each for each in slices if "lambda" in each.args["program"]]) == 3
    for name in ("compile", "compile 1", "compile 2"):
        alone = on(trace, name)
        assert all(before.end_ns <= after.start_ns for before, after in itertools.pairwise(alone))
    (counter,) = (number for number, track in trace.tracks.items() if track.name == COUNTER)
    values = [each.value for each in trace.counts if each.track == counter]
    assert values == list(range(len(slices) + 2))
