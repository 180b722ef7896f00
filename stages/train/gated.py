"""A trainer behind a gate: judges each step, keeps the best weights, and has them win at the end where that is the action.

Around ``Trainer`` as a collector, so that training knows no gate. ``Gate`` decides; this file holds weights and files.
"""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import anyio.to_thread
from flax import nnx

from flow import Context, Freshness
from stages.cancellation import to_the_end
from stages.checkpoint.best import BestStore
from stages.records import Batch, Weights
from stages.train.gate import Gate
from stages.train.trainer import Trainer


class Gated:
    """A ``Trainer`` whose steps pass a gate.

    Args:
        trainer: what is gated; opened and closed with this.
        gate: judges.
        model: what the trainer trains; gets the best weights at the end where the action is ``keep_best``.
        best: where the best weights are kept; ``None`` keeps them in memory, which costs a copy of what is trained.

    Attributes:
        gate: judges.
    """

    def __init__(self, trainer: Trainer, gate: Gate, model: nnx.Module, best: BestStore | None = None) -> None:
        self._trainer, self.gate, self._model, self._store = trainer, gate, model, best
        self._kept: Weights | None = None
        self._stack = ExitStack()

    async def __aenter__(self) -> Self:
        await self._trainer.__aenter__()
        if self._store is not None:
            self._stack.enter_context(self._store)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._trainer.__aexit__(kind, error, trace)
        finally:
            await to_the_end(anyio.to_thread.run_sync(self._close))

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

    def advice(self, freshness: Freshness | None) -> Iterable[str]:
        """See ``Trainer.advice``."""
        return self._trainer.advice(freshness)

    def add(self, batch: Batch, context: Context) -> None:
        """See ``Trainer.add``."""
        self._trainer.add(batch, context)

    def finish(self, context: Context) -> Weights:
        """See ``Trainer.finish``.

        Raises:
            GateClosed: the step broke a tolerance, and the gate stops runs.
        """
        weights = self._trainer.finish(context)
        assert self._trainer.last_row is not None
        self.gate.see_step(self._trainer.last_row)
        return weights

    async def see_heldout(self, weights: Weights, row: Mapping[str, Any]) -> None:
        """Judge an evaluation that measured something, and keep its weights where it is the best so far.

        Raises:
            GateClosed: the score fell too far, and the gate stops runs.
            OSError: the best weights could not be written.
        """
        if not self.gate.config.needs_heldout:
            return
        if self.gate.see_heldout(row):
            await to_the_end(anyio.to_thread.run_sync(self._keep, weights, int(row["version"])))
        self.gate.judge_heldout(row)

    @property
    def _keeps_best(self) -> bool:
        return self.gate.config.action == "keep_best"

    def _keep(self, weights: Weights, version: int) -> None:
        if self._store is None:
            self._kept = weights
        else:
            self._store.save(version, weights.parameters, wins=self._keeps_best)

    def _close(self) -> None:
        """The model has what the trainer wrote back; the best weights take its place where they win."""
        with self._stack:
            if self._keeps_best and self.gate.best is not None:
                nnx.update(self._model, self._best())

    def _best(self) -> Any:
        if self._store is not None:
            return self._store.restore(self._trainer.weights.parameters)
        assert self._kept is not None
        return self._kept.parameters
