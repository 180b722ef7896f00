"""Checks of a program's parts against each other, before anything runs. Each raises one error that lists what does not fit."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from graphs.engine_pools import EnginePools
from graphs.heldout_config import HeldoutConfig
from stages.records import Example, Preference, Task
from stages.rollout.config import EngineConfig
from stages.text.chat import Chat, ToolSpec
from stages.text.demonstrations import demonstrate
from stages.text.preferences import write_preference
from stages.train.gate import GateConfig

Named = TypeVar("Named", Example, Preference)


def check_apart(taught: Iterable[str], heldout: Sequence[Task], what: str) -> None:
    """Refuse held-out tasks whose question is also learned from.

    Args:
        taught: the questions that are learned from.
        heldout: tasks to evaluate on.
        what: what ``taught`` is, for the message.

    Raises:
        ValueError: naming the first ten.
    """
    known = set(taught)
    shared = [task for task in heldout if task.prompt in known]
    if shared:
        raise ValueError(
            f"expected held-out tasks whose questions are not among {what}; got {len(shared)} that are: "
            + ", ".join(task.id for task in shared[:10])
            + "; take them out of one of the two"
        )


def check_rows(row_length: int, context_length: int) -> None:
    """Refuse rows that could not hold an episode.

    Raises:
        ValueError: rows are shorter than the engine's context.
    """
    if row_length < context_length:
        raise ValueError(
            f"expected rows that hold the longest episode, engine.context_length={context_length} tokens; got "
            f"trainer.row_length={row_length}; raise row_length or lower context_length"
        )


def check_demonstrations(examples: Sequence[Example], chat: Chat, tools: Sequence[ToolSpec], row_length: int) -> None:
    """Refuse demonstrations that cannot be written, or are longer than a row.

    Raises:
        ValueError: naming the first ten.
    """

    def length(example: Example) -> int:
        return len(demonstrate(example, chat, tools, birth=0, member=0).ids)

    _check_lengths(examples, length, row_length, "demonstrations of at most", "tokens")


def check_preferences(preferences: Sequence[Preference], chat: Chat, tools: Sequence[ToolSpec], row_length: int) -> None:
    """Refuse preferences that cannot be written, or whose two replies do not share a row.

    Raises:
        ValueError: naming the first ten.
    """

    def length(pair: Preference) -> int:
        return sum(len(episode.ids) for episode in write_preference(pair, chat, tools, birth=0).episodes)

    _check_lengths(preferences, length, row_length, "preferences whose two replies, each behind the prompt, have at most",
                   "tokens together")  # fmt: skip


def _check_lengths(items: Iterable[Named], length: Callable[[Named], int], row_length: int, what: str, of: str) -> None:
    """Refuse what cannot be written, or is longer than a row, all at once."""
    offenders: list[str] = []
    for item in items:
        try:
            if (found := length(item)) > row_length:
                offenders.append(f"{item.id}: {found} tokens")
        except ValueError as error:
            offenders.append(f"{item.id}: {error}")
    if offenders:
        shown = "\n  ".join(offenders[:10])
        raise ValueError(
            f"expected {what} trainer.row_length={row_length} {of}; got {len(offenders)} that cannot be used:\n  {shown}\n"
            "shorten or remove them, or raise row_length"
        )


def eviction_warning(max_concurrency: int, engine: EngineConfig, max_turns: int) -> str | None:
    """What to say of more conversations at once than the engine can keep; ``None`` for nothing.

    With ``eviction="never"`` those that are too many wait, and none loses its cache.
    """
    if max_concurrency <= engine.slots + engine.kept or max_turns == 1 or engine.eviction == "never":
        return None
    return (
        f"{max_concurrency} conversations at once over {engine.slots} engine slots and {engine.kept} kept caches: which of "
        "them lose their cache between turns depends on timing, so the same seed may give other numbers; raise engine.kept or "
        "engine.slots, lower max_concurrency, or set engine.eviction to never"
    )


def check_heldout(config: HeldoutConfig, pools: EnginePools, gate: GateConfig) -> None:
    """Refuse an evaluation during training that takes the whole engine, and a gate that compares evaluations where none is.

    Raises:
        ValueError: naming the setting.
    """
    if config.every is None:
        if gate.needs_heldout:
            raise ValueError(
                "expected evaluations during training for a gate that compares them, got heldout.every=None; set it, or leave "
                "gate.action, gate.heldout_drop and gate.heldout_interval as they were"
            )
        return
    held = {**({} if pools.turn is None else {pools.turn: 1}), **pools.episode}
    for pool, units in held.items():
        if config.max_concurrency * units >= pools.sizes[pool]:
            raise ValueError(
                f"expected a quota that leaves training a part of the {pools.sizes[pool]} units of pool '{pool}', got "
                f"heldout.max_concurrency={config.max_concurrency} of {units} each; lower it, or give the engine more slots"
            )
