"""What one update trains on, and the order of the updates of a step. No arrays on a device, no parameters.

A step with a single update streams: its one minibatch grows as groups arrive. With several, the groups of a step are cut into
minibatches by birth and packed once; each pass goes over all of them, in an order of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from stages.batches.rows import RowFiller, Rows
from stages.losses.tokens import Loss
from stages.records import Batch
from stages.train.config import TrainerConfig
from stages.train.whitening import whitened, without_silent


@dataclass
class Minibatch:
    """Held on the host until its update is judged, since a bad one is saved. Bounded by the groups of a step.

    Attributes:
        batches: its groups.
        rows: the micro-batches they were packed into.
    """

    batches: list[Batch] = field(default_factory=list[Batch])
    rows: list[Rows] = field(default_factory=list[Rows])

    @property
    def num_targets(self) -> int:
        """Tokens with a loss."""
        return sum(batch.num_targets for batch in self.batches)

    @property
    def divisor(self) -> float:
        """What its summed loss is divided by; 0 where there is no target, which leaves nothing to divide."""
        return sum(batch.divisor for batch in self.batches) if self.num_targets else 0.0


def of_step(batches: Sequence[Batch], config: TrainerConfig, loss: Loss, *, whiten: bool) -> list[Minibatch]:
    """What the updates of a step are made from, packed. Of a step that streams: its one minibatch, as it grew.

    Args:
        batches: of the step, in birth order.
        config: of the trainer.
        loss: of the trainer.
        whiten: whether advantages are whitened over the step.
    """
    chosen = whitened(batches) if whiten else list(batches)
    if whiten and not loss.needs.silent:
        chosen = without_silent(chosen)
    return [_packed(part, config, loss) for part in cut(chosen, config.num_minibatches)]


def _packed(batches: list[Batch], config: TrainerConfig, loss: Loss) -> Minibatch:
    filler = RowFiller(config.shapes, loss.needs.arrays)
    rows = [block for batch in batches for block in filler.add(batch.units)]
    return Minibatch(batches, rows + filler.flush())


def cut(batches: Sequence[Batch], num_minibatches: int) -> list[list[Batch]]:
    """Groups of a step as the minibatches of a pass: consecutive in birth order, their sizes apart by one at most.

    Args:
        batches: in birth order.
        num_minibatches: wanted; there are fewer where there are fewer groups.
    """
    shares = np.array_split(np.arange(len(batches)), min(num_minibatches, max(1, len(batches))))
    return [[batches[index] for index in share] for share in shares]


def order(seed: int, step: int, epoch: int, count: int) -> list[int]:
    """The order in which a pass takes its minibatches: chance, but the same whenever and however the groups arrived.

    Args:
        seed: of the trainer.
        step: number of the step, from 1.
        epoch: number of the pass, from 0.
        count: minibatches of a pass.
    """
    return np.random.default_rng((seed, step, epoch)).permutation(count).tolist()
