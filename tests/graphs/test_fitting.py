import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from graphs.calculator import calculator
from graphs.fitting import eviction_warning
from graphs.runs.execute import check_parts
from stages.agents.tool_agent import FinishTool, ToolAgent
from stages.envs.environment import opening_messages
from stages.episodes import PromptError
from stages.rollout.config import EngineConfig


def test_the_system_message_counts_when_prompts_are_checked(config: Callable[..., Any]) -> None:
    """What is checked is what the environment opens with, not the bare prompt."""
    program = calculator(config())
    check_parts(program)
    assert program.parts is not None
    wordy = dataclasses.replace(program.parts, opening=lambda task: opening_messages(task, "answer " * 20))
    with pytest.raises(PromptError, match="expected prompts of at most 63 tokens"):
        check_parts(dataclasses.replace(program, parts=wordy))


@pytest.mark.parametrize(
    ("conversations", "max_turns", "changes", "warned"),
    [
        (12, 3, {}, True),
        (12, 3, {"kept": 3}, True),
        (12, 3, {"kept": 4}, False),
        (12, 3, {"eviction": "never"}, False),
        (12, 1, {}, False),
        (8, 3, {}, False),
    ],
)
def test_more_conversations_than_slots_and_kept_caches_are_warned_of(conversations, max_turns, changes, warned) -> None:
    warning = eviction_warning(conversations, EngineConfig(slots=8, **changes), max_turns)
    assert (warning is not None) == warned
    if warning is not None:
        assert warning.startswith(f"12 conversations at once over 8 engine slots and {changes.get('kept', 0)} kept caches: ")
        assert warning.endswith("raise engine.kept or engine.slots, lower max_concurrency, or set engine.eviction to never")


def test_a_vocabulary_smaller_than_the_chat_is_refused(config: Callable[..., Any]) -> None:
    small = config().model.model_copy(update={"vocab_size": 10})
    with pytest.raises(ValueError, match=r"model\.vocab_size=10; raise it"):
        check_parts(calculator(config(model=small)))


def test_a_finish_call_named_like_a_tool_is_refused_before_anything_runs(config: Callable[..., Any]) -> None:
    program = calculator(config())
    assert program.parts is not None
    named = dataclasses.replace(program.parts, agent=ToolAgent(finish=FinishTool("calculator")))
    with pytest.raises(ValueError, match="expected a finish call of a name of its own, got 'calculator'"):
        check_parts(dataclasses.replace(program, parts=named))
