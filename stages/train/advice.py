"""What a trainer has ``build`` warn of: settings that can run, and are probably not meant together. Pure."""

from collections.abc import Iterator

from flow import Freshness
from stages.losses.tokens import Loss
from stages.train.config import TrainerConfig


def advice(config: TrainerConfig, loss: Loss, whiten: bool, freshness: Freshness | None) -> Iterator[str]:
    """Streaming that is lost and why; stale data for a loss that does not correct for it.

    Args:
        config: of the trainer.
        loss: see ``stages.losses.tokens.Loss``.
        whiten: whether advantages are whitened over a step.
        freshness: of the trainer's feedback edge; ``None`` without one.
    """
    reasons = [f"num_epochs={config.num_epochs}"] * (config.num_epochs > 1)
    reasons += [f"num_minibatches={config.num_minibatches}"] * (config.num_minibatches > 1)
    reasons += ["advantages that are whitened over the step"] * whiten
    # Without groups that are still being made there is nothing to overlap with.
    if reasons and freshness is not None:
        yield (
            f"no gradient is taken before the last group of a step is there, because of {' and '.join(reasons)}; with one "
            "epoch, one minibatch and no whitening it would be, while others are being made"
        )
    if freshness is not None and freshness.max_lag > 0 and not loss.needs.stale:
        yield (
            f"max_lag={freshness.max_lag} lets in what older weights sampled, and {type(loss).__name__} takes it for what the "
            "present ones would; set max_lag=0, or take a loss that clips or corrects"
        )
