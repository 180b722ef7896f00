"""Something around the trainer of a graph, which lets it do all the work: what it does not say itself, it hands on."""

from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from flow import Context, Freshness
from stages.records import Batch, Weights
from stages.train.gated import Gated, GatedState


class Around:
    """Around a ``Gated`` trainer, and a trainer itself.

    Args:
        trainer: trains; opened and closed with this.
    """

    def __init__(self, trainer: Gated) -> None:
        self.trainer = trainer

    async def __aenter__(self) -> Self:
        await self.trainer.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.trainer.__aexit__(kind, error, trace)

    def advice(self, freshness: Freshness | None) -> Iterable[str]:
        """See ``Trainer.advice``."""
        return self.trainer.advice(freshness)

    def add(self, batch: Batch, context: Context) -> None:
        """See ``Trainer.add``."""
        self.trainer.add(batch, context)

    def finish(self, context: Context) -> Weights:
        """See ``Gated.finish``."""
        return self.trainer.finish(context)

    def state(self) -> GatedState:
        """See ``Gated.state``."""
        return self.trainer.state()

    def restore(self, state: GatedState) -> None:
        """See ``Gated.restore``."""
        self.trainer.restore(state)

    def save(self, folder: Path) -> Callable[[], None]:
        """See ``Gated.save``."""
        return self.trainer.save(folder)

    def load(self, folder: Path) -> None:
        """See ``Gated.load``."""
        self.trainer.load(folder)
