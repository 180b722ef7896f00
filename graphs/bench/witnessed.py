"""A trainer whose steps are looked at: what each was given, and what it said of it. Changes nothing of what is trained."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flow import Context, Graph
from graphs.bench.around import Around
from stages.records import Batch, Weights
from stages.train.gated import Gated
from stages.train.metrics import StepRow


@dataclass(frozen=True)
class SeenStep:
    """A step that was trained.

    Attributes:
        number: from 1, those before a resume included.
        batches: what it was given, in the order in which it came.
        lags: versions between dispatch and training of each; ``None`` where it carried none.
        row: what the trainer reported.
        digest: of all bits of the parameters after it.
        weights: that it published.
    """

    number: int
    batches: tuple[Batch, ...]
    lags: tuple[int | None, ...]
    row: StepRow
    digest: str
    weights: Weights


class Witnessed(Around):
    """A ``Gated`` trainer, and somebody who sees its steps.

    Args:
        trainer: trains.
        see: called with each step that is trained, on the trainer's thread, after the parameters changed and before they are
            published. A step that a kill undid is seen again.
        given: called with each batch before the trainer takes it in, on the same thread.
    """

    def __init__(
        self, trainer: Gated, see: Callable[[SeenStep], None], given: Callable[[Batch], None] = lambda batch: None
    ) -> None:
        super().__init__(trainer)
        self._see, self._told = see, given
        self._given: list[tuple[Batch, int | None]] = []

    def add(self, batch: Batch, context: Context) -> None:
        """See ``Trainer.add``."""
        self._told(batch)
        self._given.append((batch, context.lag))
        self.trainer.add(batch, context)

    def finish(self, context: Context) -> Weights:
        """See ``Gated.finish``."""
        given, self._given = self._given, []
        weights = self.trainer.finish(context)
        assert self.trainer.last_row is not None
        batches, lags = tuple(batch for batch, _ in given), tuple(lag for _, lag in given)
        self._see(SeenStep(self.trainer.step, batches, lags, self.trainer.last_row, self.trainer.digest(), weights))
        return weights


def witnessed(graph: Graph, see: Callable[[SeenStep], None], given: Callable[[Batch], None] = lambda batch: None) -> Graph:
    """A graph of training whose steps are seen; see ``Witnessed``."""
    trainer: Any = graph.spec().nodes["trainer"].stage
    return graph.replace("trainer", Witnessed(trainer, see, given))


def targets_of(step: SeenStep) -> list[str]:
    """Names of what a step trains: of each group the segments with a gradient, in order, or that it has none."""
    names = [[segment.name for segment in batch.segments] or [f"group {batch.birth}: silent"] for batch in step.batches]
    return [name for of_group in names for name in of_group]
