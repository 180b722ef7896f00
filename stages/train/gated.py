"""A trainer behind a gate: judges each step, keeps the best weights, and has them win at the end where that is the action.

Around ``Trainer`` as a collector, so that training knows no gate. ``Gate`` decides; this file holds weights and files.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio.to_thread
import msgspec
from flax import nnx

from flow import Context, Freshness
from stages.cancellation import to_the_end
from stages.checkpoint.best import BestWeights
from stages.checkpoint.store import BEST
from stages.records import Batch, Weights
from stages.train.gate import Gate, GateState
from stages.train.learner import Learner
from stages.train.metrics import StepRow
from stages.train.trainer import Trainer, TrainerState


class GatedState(msgspec.Struct, frozen=True):
    """What a run that goes on needs of both."""

    trainer: TrainerState
    gate: GateState


class Gated:
    """A ``Trainer`` whose steps pass a gate.

    Args:
        trainer: what is gated; opened and closed with this.
        gate: judges.
        model: what the trainer trains; gets the best weights at the end where the action is ``keep_best``.
        best: where the best weights are kept.

    Attributes:
        gate: judges.
    """

    def __init__(self, trainer: Trainer, gate: Gate, model: nnx.Module, best: BestWeights) -> None:
        self._trainer, self.gate, self._model, self._best = trainer, gate, model, best
        self._stack = ExitStack()

    async def __aenter__(self) -> Self:
        await self._trainer.__aenter__()
        if self.gate.config.needs_heldout:
            self._stack.enter_context(self._best)
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

    @property
    def last_row(self) -> StepRow | None:
        """See ``Trainer.last_row``."""
        return self._trainer.last_row

    @property
    def learner(self) -> Learner:
        """See ``Trainer.learner``."""
        return self._trainer.learner

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
        assert self.last_row is not None
        self.gate.see_step(self.last_row)
        return weights

    async def see_heldout(self, weights: Weights, row: Mapping[str, Any]) -> None:
        """Judge an evaluation that measured something, and keep its weights where it is the best so far.

        Raises:
            GateClosed: the score fell too far, and the gate stops runs.
            OSError: the best weights could not be written.
        """
        if not self.gate.config.needs_heldout:
            return
        if self.gate.is_best(row):
            await to_the_end(anyio.to_thread.run_sync(self._keep, weights, int(row["version"])))
        self.gate.see_heldout(row)

    def state(self) -> GatedState:
        """As it was when the step under way began, with the best evaluation of now; its weights go with the next ``save``."""
        self._best.pin(self._best_version)
        return GatedState(self._trainer.state(), self.gate.state())

    def restore(self, state: GatedState) -> None:
        """Go on after this step."""
        self._trainer.restore(state.trainer)
        self.gate.restore(state.gate)

    def save(self, folder: Path) -> Callable[[], None]:
        """See ``Trainer.save``; the best weights that ``state`` spoke of are there too.

        Raises:
            OSError: they could not be put there.
        """
        if self.gate.config.needs_heldout:
            self._best.link(folder / BEST)
        return self._trainer.save(folder)

    def load(self, folder: Path) -> None:
        """See ``Trainer.load``."""
        self._trainer.load(folder)
        if self.gate.config.needs_heldout:
            self._best.take_over(folder / BEST)

    @property
    def _best_version(self) -> int | None:
        best = self.gate.best
        return None if best is None else int(best["version"])

    def _keep(self, weights: Weights, version: int) -> None:
        self._best.keep(version, weights.parameters, wins=self.gate.config.action == "keep_best")

    def _close(self) -> None:
        """The model has what the trainer wrote back; the best weights take its place where they win."""
        with self._stack:
            if self.gate.config.action == "keep_best" and self._best_version is not None:
                nnx.update(self._model, self._best.load(self._best_version, self._trainer.weights.parameters))
