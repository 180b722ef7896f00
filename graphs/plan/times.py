"""What a plan knows of a graph: how long its parts take, and what its episodes were. Values only; ``measure.py`` finds them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphs.plan.permits import Holds
from stages.batches.plan import Shape
from stages.records import Group


@dataclass(frozen=True)
class EngineTimes:
    """An engine alone, with nothing else at work.

    Attributes:
        decode_s: seconds of a decode step by its number of rows, what the host does before the next one included.
        prefill_s: the same of a prefill step.
        swap_s: seconds until new weights are in force between two steps.
        demand: units of the device that it keeps busy: processors on a CPU, the whole device elsewhere.
    """

    decode_s: Mapping[int, float]
    prefill_s: Mapping[int, float]
    swap_s: float
    demand: float


@dataclass(frozen=True)
class TrainerTimes:
    """A trainer alone, with nothing else at work.

    Attributes:
        gradient_s: seconds of a micro-batch by its shape.
        group_s: seconds for a group of all in a step that is neither a gradient nor an update, as laying out rows.
        finish_s: seconds of all updates of a step.
        demand: units of the device that it keeps busy in a gradient.
        gradient_bytes: that a micro-batch works in, beside weights and optimizer; ``None`` where the platform does not say.
    """

    gradient_s: Mapping[Shape, float]
    group_s: float
    finish_s: float
    demand: float
    gradient_bytes: int | None = None


@dataclass(frozen=True)
class Times:
    """All of it.

    Attributes:
        groups: that were scored, in the order of their birth: what was said, how long tools took, rewards.
        engine: see ``EngineTimes``.
        trainer: by rows of a micro-batch.
        turn_s: seconds that the event loop works for a turn of an episode, with its share of all else on the loop.
        late_s: mean seconds by which the event loop was late with a timer. What was waited for in a run is longer by it, and on
            paper the loop is late by itself.
        nodes_s: mean seconds for a group of each node between barrier and advantages.
        processors: that this process could have: those there are, less what other programs kept busy meanwhile.
        holds: what tools held of the pools of the graph, by step.
        shared: whether engine and trainer compute on the processors, which the event loop needs too; else on a device.
        apart: whether engine and trainer have devices of their own.
    """

    groups: Sequence[Group]
    engine: EngineTimes
    trainer: Mapping[int, TrainerTimes]
    turn_s: float
    late_s: float
    nodes_s: Mapping[str, float]
    processors: float
    holds: Holds = field(default_factory=Holds)
    shared: bool = True
    apart: bool = False
