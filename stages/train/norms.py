"""When a gradient norm is a spike: beyond an absolute bound, or far above the norms before it. Pure; a bounded window.

The window is part of a run's state: a resumed run judges as one that went on.
"""

from collections.abc import Sequence

import numpy as np

from stages.train.config import TrainerConfig

WINDOW = 64
"""Norms that are remembered."""
FEWEST = 8
"""Norms that a median needs to mean anything; with fewer, only the absolute bound counts."""


def no_norms() -> np.ndarray:
    """float32 [WINDOW]: the empty window, NaN where nothing was."""
    return np.full(WINDOW, np.nan, np.float32)


def with_norm(norms: np.ndarray, norm: float) -> np.ndarray:
    """The window with a norm more, without the oldest.

    One that is not finite is left out, and one of 0, which a step without any signal has. Those of skipped updates are kept:
    norms that stay high are no spike, and the median follows within half a window.
    """
    return np.append(norms[1:], np.float32(norm)) if 0.0 < norm < np.inf else norms


def known(norms: np.ndarray) -> tuple[float, ...]:
    """The norms of a window, oldest first, as plain numbers that say all of it."""
    return tuple(float(norm) for norm in norms[np.isfinite(norms)])


def window(known: Sequence[float]) -> np.ndarray:
    """The window of what ``known`` gave."""
    return np.concatenate([no_norms(), np.asarray(known, np.float32)])[-WINDOW:]


def bound(norms: np.ndarray, config: TrainerConfig) -> float:
    """Largest norm of an update that is applied; infinite without a bound."""
    bounds = [np.inf] if config.max_grad_norm_skip is None else [config.max_grad_norm_skip]
    known = norms[np.isfinite(norms)]
    if config.max_grad_norm_ratio is not None and known.size >= FEWEST:
        bounds.append(config.max_grad_norm_ratio * float(np.median(known)))
    return float(min(bounds))
