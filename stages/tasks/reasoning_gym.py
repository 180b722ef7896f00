"""Tasks out of the data sets of reasoning-gym, which makes questions by the number and scores answers itself.

A task carries what its data set wants to see again for a score: config, and the entry's metadata as a Python literal. JSON
would turn tuples into lists, and then ``arc_agi`` and ``rearc`` score right answers as wrong. To make the entry again from its
index would not do either: in ``isomorphic_strings``, ``knight_swap``, ``polynomial_multiplication``, ``ransom_note`` and
``word_ladder`` it depends on the hash seed of the process (set PYTHONHASHSEED to repeat a run on them or resume it), and
``codeio`` gives another one each time. Played by ``stages/envs/adapters/reasoning_gym_env.py``.
"""

import ast
import functools
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from stages.packages import optional_package
from stages.records import Task


def reasoning_gym_tasks(
    dataset: str, size: int, seed: int, *, config: Mapping[str, Any] | None = None, max_chars: int | None = None
) -> tuple[Task, ...]:
    """The first entries of a data set. All are made here, which takes from microseconds to 0.1 s each.

    Args:
        dataset: a name that reasoning-gym knows, such as ``leg_counting``; ``composite`` mixes several, whose config has
            ``datasets``, a list of ``{"name": ..., "weight": ..., "config": {...}}``.
        size: how many.
        seed: entry i depends on seed + i, so seeds of two sets that must not share entries lie further apart than their sizes.
        config: the data set's own settings; ``None`` for its defaults.
        max_chars: longer questions are left out; ``None`` for no bound.

    Raises:
        MissingPackageError: reasoning-gym is not installed.
        ValueError: there is no such data set, or its config is refused.
    """
    settings = {**(config or {}), "size": size, "seed": seed}
    made = reasoning_gym_dataset(dataset, msgspec.json.encode(settings))
    tasks = []
    for index in range(size):
        entry = made[index]
        extra = {"dataset": dataset, "config": settings, "metadata": _literal(entry["metadata"], f"{dataset}[{index}]")}
        tasks.append(Task(f"{dataset}-{seed}-{index}", entry["question"], entry["answer"], f"reasoning_gym/{dataset}", extra))
    return tuple(task for task in tasks if max_chars is None or len(task.prompt) <= max_chars)


def reasoning_gym_score(task: Task, answer: str) -> float | None:
    """What the data set of a task gives for an answer; ``None`` where its scorer raises, as some do for what is no answer.

    Can take for ever, where the data set evaluates expressions, and runs what the answer says: see ``reasoning_gym_env.py``.
    """
    made = reasoning_gym_dataset(task.extra["dataset"], msgspec.json.encode(task.extra["config"]))
    metadata = ast.literal_eval(task.extra["metadata"])
    try:
        return float(made.score_answer(answer, {"question": task.prompt, "answer": task.answer, "metadata": metadata}))
    except Exception:  # the answer's fault, whatever it is: scorers are written for answers of the right form
        return None


@functools.lru_cache(maxsize=256)
def reasoning_gym_dataset(dataset: str, settings: bytes) -> Any:
    """A data set of reasoning-gym. The last ones are kept, since some take a while to be made.

    Args:
        dataset: its name.
        settings: its config as JSON, size and seed included.

    Raises:
        MissingPackageError: reasoning-gym is not installed.
        ValueError: there is no such data set, or its config is refused.
    """
    package = optional_package("reasoning_gym", "reasoning-gym", "reasoning_gym_tasks")
    config = msgspec.json.decode(settings)
    if dataset == "composite":
        spec = optional_package("reasoning_gym.composite", "reasoning-gym", "reasoning_gym_tasks").DatasetSpec
        config["datasets"] = [spec(**part) for part in config.get("datasets", ())]
    try:
        return package.create_dataset(dataset, **config)
    except (AssertionError, TypeError, ValueError) as error:
        raise ValueError(
            f"expected a data set of reasoning-gym and settings it takes; got {dataset!r} with {config}, in "
            f"reasoning_gym_tasks: {error}; see reasoning_gym.factory.DATASETS for names and config classes"
        ) from error


def _literal(value: Any, where: str) -> str:
    """Text that ``ast.literal_eval`` reads back, checked. NumPy's scalars become Python's."""
    text = repr(_plain(value))
    if ast.literal_eval(text) != value:
        raise ValueError(
            f"expected metadata of plain values; got {text[:80]}, in {where} of reasoning-gym; leave this data set out"
        )
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_plain(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple | set):
        return type(value)(_plain(part) for part in value)
    return value.item() if isinstance(value, np.generic) else value
