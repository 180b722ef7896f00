"""Tasks that are seeds of a game: each begins somewhere else, where the game begins at random.

Only names and numbers: nothing here knows a package. Played by the Gymnasium and TextArena environments of
``stages/envs/adapters``.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from stages.records import Task


def seeded_tasks(
    env_id: str, seeds: Iterable[int], *, prompt: str = "", options: Mapping[str, Any] | None = None
) -> tuple[Task, ...]:
    """One task for each seed.

    Args:
        env_id: name of the environment in its package, such as ``FrozenLake-v1``.
        seeds: each at least 0.
        prompt: what to do, for the model; empty for nothing but the first observation.
        options: keyword arguments of the environment, such as ``is_slippery``; ``None`` for none.
    """
    return tuple(
        Task(f"{env_id}-{seed}", prompt, None, env_id, {"env_id": env_id, "seed": seed, "options": dict(options or {})})
        for seed in seeds
    )
