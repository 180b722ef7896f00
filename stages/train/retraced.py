"""A trainer that is given again what it was given in a run, in its order. Knows no journal: who reads it gives the groups.

Around a trainer as a collector, so that training knows no replay. It tells the trainer how old each group was when the run
trained it, since nothing in a replay ages, refuses groups in another order, and keeps the batches of one step for whoever
wants to look into them.
"""

from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import anyio.to_thread
import msgspec

from flow import Context
from stages.records import Batch, Weights
from stages.train.gated import Gated, GatedState
from stages.train.metrics import StepRow


class Expected(NamedTuple):
    """What comes next.

    Attributes:
        birth: of the group.
        lag: its age in versions in the run; ``None`` where it carried none.
    """

    birth: int
    lag: int | None


class Retraced:
    """A ``Gated`` trainer on groups that were trained before.

    Args:
        trainer: takes the steps; opened and closed with this.
        see: called with the row of each step and the digest of the parameters after it, on the trainer's thread.
        keep: number of the step, from 1, whose batches are kept; ``None`` keeps none.
        after: what a commit saved of the trainer, and its state, to go on after that step; ``None`` begins with the model.

    Attributes:
        kept: batches of that step, in order; empty before it.
    """

    def __init__(
        self,
        trainer: Gated,
        see: Callable[[StepRow, str], None],
        *,
        keep: int | None = None,
        after: tuple[Path, GatedState] | None = None,
    ) -> None:
        self._trainer, self._see, self._keep, self._after = trainer, see, keep, after
        self._expected = deque[Expected]()
        self.kept: list[Batch] = []

    async def __aenter__(self) -> Self:
        await self._trainer.__aenter__()
        if self._after is not None:
            folder, state = self._after
            await anyio.to_thread.run_sync(self._trainer.load, folder)
            self._trainer.restore(state)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._trainer.__aexit__(kind, error, trace)

    def expect(self, birth: int, lag: int | None) -> None:
        """A group comes behind those that were told of."""
        self._expected.append(Expected(birth, lag))

    def add(self, batch: Batch, context: Context) -> None:
        """Take in one batch; see ``Trainer.add``.

        Raises:
            ValueError: it is not the one that was expected.
        """
        wanted = self._expected.popleft() if self._expected else None
        if wanted is None or batch.birth != wanted.birth:
            expected = "none" if wanted is None else f"group {wanted.birth}"
            raise ValueError(
                f"expected {expected}, as in the run, got group {batch.birth}, in the replay of step {self._trainer.step + 1}; "
                "replay with the version and the settings of the run"
            )
        self._trainer.add(batch, msgspec.structs.replace(context, lag=wanted.lag))
        if self._keep == self._trainer.step + 1:
            self.kept.append(batch)

    def finish(self, context: Context) -> Weights:
        """Complete the step; see ``Gated.finish``."""
        weights = self._trainer.finish(context)
        assert self._trainer.last_row is not None
        self._see(self._trainer.last_row, self._trainer.digest())
        return weights
