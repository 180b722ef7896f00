"""A trainer that is given again what it was given in a run, in its order. Knows no journal: who reads it gives the groups.

Around a trainer as a collector, so that training knows no replay. It tells the trainer how old each group was when the run
trained it, since nothing in a replay ages, refuses groups in another order, and keeps the batches of one step for whoever
wants to look into them.
"""

from collections import deque
from types import TracebackType
from typing import Self

import msgspec

from flow import Context
from stages.records import Batch, Weights
from stages.train.gated import Gated


class Retraced:
    """A ``Gated`` trainer on groups that were trained before.

    Args:
        trainer: takes the steps; opened and closed with this.
        keep: number of the step, from 1, whose batches are kept; ``None`` keeps none.

    Attributes:
        kept: batches of that step, in order; empty before it.
    """

    def __init__(self, trainer: Gated, keep: int | None = None) -> None:
        self._trainer, self._keep = trainer, keep
        self._expected = deque[tuple[int, int | None]]()
        self.kept: list[Batch] = []

    async def __aenter__(self) -> Self:
        await self._trainer.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._trainer.__aexit__(kind, error, trace)

    @property
    def weights(self) -> Weights:
        """See ``Trainer.weights``."""
        return self._trainer.weights

    @property
    def step(self) -> int:
        """See ``Trainer.step``."""
        return self._trainer.step

    def digest(self) -> str:
        """See ``Trainer.digest``."""
        return self._trainer.digest()

    def expect(self, birth: int, lag: int | None) -> None:
        """A group comes next, of this age in versions; ``None`` where it carried none."""
        self._expected.append((birth, lag))

    def add(self, batch: Batch, context: Context) -> None:
        """Take in one batch; see ``Trainer.add``.

        Raises:
            ValueError: it is not the one that was expected.
        """
        birth, lag = self._expected.popleft() if self._expected else (None, None)
        if batch.birth != birth:
            raise ValueError(
                f"expected group {birth}, as in the run, got group {batch.birth}, in the replay of its steps; "
                "replay with the version and the settings of the run"
            )
        self._trainer.add(batch, msgspec.structs.replace(context, lag=lag))
        if self._trainer.step + 1 == self._keep:
            self.kept.append(batch)

    def finish(self, context: Context) -> Weights:
        """Complete the step; see ``Gated.finish``."""
        return self._trainer.finish(context)
