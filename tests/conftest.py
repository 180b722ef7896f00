"""What holds for every test: JAX on two virtual CPU devices, strict in dtype and rank, and no network.

Set here because it must be in force before the first import of jax, and because subprocesses inherit it.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["JAX_NUM_CPU_DEVICES"] = "2"
# XLA's CPU threads starve, and a sharded loop hangs, unless there are at least twice as many as virtual devices.
os.environ["NPROC"] = "16"
os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

STRICT = {"advantages", "losses", "models", "rollout"}
"""Stage families whose arithmetic is all ours. Elsewhere optax runs, whose schedules and moments mix dtypes."""


@pytest.fixture(autouse=True)
def strict_dtypes(request: pytest.FixtureRequest) -> Iterator[None]:
    """No dtype is promoted on the quiet in the families on the list."""
    folders = Path(request.fspath).relative_to(Path(__file__).parent).parts
    if folders[0] != "stages" or folders[1] not in STRICT:
        yield
        return
    import jax

    with jax.numpy_dtype_promotion("strict"):
        yield
