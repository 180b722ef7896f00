"""What travels on the edges of the ready graphs can be saved, and comes back to the bit (rule B7, P2)."""

import dataclasses
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from flow import Gathered, Plan, Run
from flow.saving import Commits, Saving
from flow.saving._image import Ports
from graphs.algorithms import ALGORITHMS
from graphs.calculator import CalculatorConfig, calculator
from graphs.dpo import DpoConfig, dpo
from graphs.heldout_config import HeldoutConfig
from graphs.rl import rl
from stages.arrays import ARRAYS
from stages.batches.pack import make_batch
from stages.records import (
    BadCall,
    Batch,
    Episode,
    EpisodeRow,
    Example,
    Group,
    Message,
    Preference,
    Row,
    Segment,
    Status,
    Task,
    ToolCall,
    Turn,
)
from stages.train.config import TrainerConfig

WITHOUT_TEACHER = [name for name in ALGORITHMS if name != "distill"]
"""The graph of ``distill`` has the edges of the others, and needs a folder with a model."""


def f32(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


MESSAGES = (
    Message("system", ""),
    Message("user", "3+4?\n\u00e9"),
    Message("assistant", "so", (ToolCall("c1", "add", {"a": 3, "b": [1.5, None]}), BadCall("c2", "expected JSON"))),
    Message("tool", "7", call_id="c1"),
)
TASK = Task("t1", "3+4?", "7", "train", {"index": 3, "deep": {"list": [1, 2.5, True, None, "x"]}, "table": f32(1, 2)}, "easy")
BARE_EPISODE = Episode(
    Task("t0", "?"), 0, 0, 0, np.zeros(0, np.int32), np.zeros(0, bool), f32(), np.zeros(0, np.int32), (), (), Status.TIMED_OUT,
    error="late",
)  # fmt: skip
EPISODE = Episode(
    TASK, 7, 3, 2, np.array([5, 6, 7], np.int32), np.array([False, True, True]), f32(np.nan, -0.1, -1e-30),
    np.array([-1, 4, 5], np.int32), (Turn(1, 3, "stop", 0.5, None, 0.25),), MESSAGES, Status.TRUNCATED_LENGTH, reward=0.1,
    parts={"answer": 0.1}, seconds=1.25, rows=(Row(0, 2, "solver"), Row(2, 3, "judge", trained=False, forked=True)),
    reference=f32(np.nan, -2, -3), teacher=f32(np.nan, -4, -5), values=f32(np.nan, 0.5, -0.0), turn_rewards=(0.1,),
)  # fmt: skip
GROUP = Group(7, (EPISODE, BARE_EPISODE), (f32(0, 1, -1), f32()), (f32(0, 2, 3), f32()), (True, False))
SEGMENT = Segment(
    np.array([1, 2], np.int32), np.array([False, True]), f32(0, 1), f32(np.nan, -1), np.array([-1, 3], np.int32), f32(0, 1),
    f32(1, 2), f32(2, 3), 0.5, "7.3",
)  # fmt: skip
BARE_SEGMENT = Segment(np.array([1, 2], np.int32), np.array([False, True]))
ROW = EpisodeRow(Status.FINISHED, 1.0, 3, 1, 0.5, 1, 2, live=False, source="train", difficulty="easy")
BATCH = Batch(7, ((SEGMENT, BARE_SEGMENT), (BARE_SEGMENT,)), 3.0, (ROW,))
EXAMPLE = Example("e", MESSAGES)
VALUES: dict[Any, tuple[Any, ...]] = {
    int: (0, 2**40),
    Task: (TASK, Task("t", "")),
    Episode: (EPISODE, BARE_EPISODE),
    Gathered[Episode]: (
        Gathered(7, (EPISODE, EPISODE), ("timed_out",), "shrunk", (BARE_EPISODE,)),
        Gathered(0, (), (), "full"),
    ),
    Group: (GROUP, Group(0, ())),
    Batch: (BATCH, Batch(0, (), 0.0), make_batch(3, [(SEGMENT,)])),
    Example: (EXAMPLE,),
    tuple[Example, ...]: ((EXAMPLE, EXAMPLE),),
    Preference: (Preference("p", MESSAGES[:2], MESSAGES[2:3], MESSAGES[2:]),),
    tuple[Segment, ...]: ((SEGMENT, BARE_SEGMENT), ()),
}
"""Of each type on any edge: one with every field set, one with as few as there can be."""


def assert_same(before: Any, after: Any, where: str = "value") -> None:
    """Type by type, float by float with their bits, array by array with dtype and shape."""
    assert type(after) is type(before), where
    if isinstance(before, Gathered):
        for field in dataclasses.fields(before):
            assert_same(getattr(before, field.name), getattr(after, field.name), f"{where}.{field.name}")
    elif isinstance(before, np.ndarray):
        assert (after.dtype, after.shape, after.tobytes()) == (before.dtype, before.shape, before.tobytes()), where
    elif isinstance(before, float):
        assert struct.pack("d", after) == struct.pack("d", before), where
    elif isinstance(before, msgspec.Struct):
        for name in before.__struct_fields__:
            assert_same(getattr(before, name), getattr(after, name), f"{where}.{name}")
    elif isinstance(before, dict):
        assert list(after) == list(before), where
        for key in before:
            assert_same(before[key], after[key], f"{where}[{key!r}]")
    elif isinstance(before, tuple | list):
        assert len(after) == len(before), where
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            assert_same(one, other, f"{where}[{index}]")
    else:
        assert after == before, where


@pytest.fixture(scope="module")
def plans(config: Callable[..., CalculatorConfig]) -> dict[str, Plan]:
    """Every ready graph with all that it may have, such as an evaluation beside the training."""
    small = config()
    heldout = HeldoutConfig(every=1, num_tasks=4, max_concurrency=4)
    program = calculator(small)
    assert program.parts is not None
    graphs = {phase.name: phase.make(None) for phase in program.phases}
    for name in WITHOUT_TEACHER:
        settings = ALGORITHMS[name].change(small.rl.model_copy(update={"heldout": heldout}))
        graphs[name] = rl(settings, program.parts)
    trainer = TrainerConfig(row_length=64, rows_per_microbatch=2)
    graphs["dpo"] = dpo(DpoConfig(trainer=trainer), program.parts, (VALUES[Preference][0],))
    return {name: graph.build(quiet=True) for name, graph in graphs.items()}


def test_no_ready_graph_is_refused(plans: dict[str, Plan], tmp_path: Path):
    """B7: every source says where it is, and every edge and state has a type that can be written."""
    for plan in plans.values():
        assert Run(plan, saving=Saving(Commits(tmp_path, hooks=ARRAYS))).plan is plan


def test_what_is_on_any_edge_comes_back_to_the_bit(plans: dict[str, Plan]):
    seen: set[Any] = set()
    for graph, plan in plans.items():
        ports = Ports(plan.spec, {}, ARRAYS)
        for name, node in plan.spec.nodes.items():
            if node.kind != "sink":
                seen.add(node.gives)
                for value in VALUES[node.gives]:
                    codec = ports.value(name)
                    assert_same(value, codec.decode(codec.encode(value)), f"{graph}.{name}")
    assert len(seen) > 6
