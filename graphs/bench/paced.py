"""A trainer that takes at least so long: what it takes then no longer depends on the machine, as long as that is faster."""

import time
from typing import Any

from flow import Context
from graphs.bench.around import Around
from stages.records import Batch, Weights
from stages.train.gated import Gated


class Paced(Around):
    """A trainer of ``graphs.rl`` at a pace. Around it as a collector, on a thread of its own as that is.

    Args:
        trainer: trains.
        group_s: least seconds for a group that is added.
        step_s: least seconds for the end of a step.
    """

    def __init__(self, trainer: Gated, group_s: float, step_s: float) -> None:
        super().__init__(trainer)
        self._group_s, self._step_s = group_s, step_s

    def add(self, batch: Batch, context: Context) -> None:
        """See ``Trainer.add``."""
        self._at_least(self._group_s, self.trainer.add, batch, context)

    def finish(self, context: Context) -> Weights:
        """See ``Trainer.finish``."""
        return self._at_least(self._step_s, self.trainer.finish, context)

    def _at_least(self, seconds: float, call: Any, *arguments: Any) -> Any:
        began = time.monotonic()
        result = call(*arguments)
        time.sleep(max(0.0, began + seconds - time.monotonic()))
        return result
