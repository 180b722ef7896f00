"""A trainer that takes at least so long: what it takes then no longer depends on the machine, as long as that is faster."""

import time
from types import TracebackType
from typing import Any, Self

from flow import Context
from stages.records import Batch, Weights
from stages.train.gated import Gated


class Paced:
    """A trainer of ``graphs.rl`` at a pace. Around it as a collector, on a thread of its own as that is.

    Args:
        trainer: trains; opened and closed with this.
        group_s: least seconds for a group that is added.
        step_s: least seconds for the end of a step.
    """

    def __init__(self, trainer: Gated, group_s: float, step_s: float) -> None:
        self._trainer, self._group_s, self._step_s = trainer, group_s, step_s

    async def __aenter__(self) -> Self:
        await self._trainer.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._trainer.__aexit__(kind, error, trace)

    def add(self, batch: Batch, context: Context) -> None:
        """See ``Trainer.add``."""
        self._at_least(self._group_s, self._trainer.add, batch, context)

    def finish(self, context: Context) -> Weights:
        """See ``Trainer.finish``."""
        return self._at_least(self._step_s, self._trainer.finish, context)

    def _at_least(self, seconds: float, call: Any, *arguments: Any) -> Any:
        began = time.monotonic()
        result = call(*arguments)
        time.sleep(max(0.0, began + seconds - time.monotonic()))
        return result
