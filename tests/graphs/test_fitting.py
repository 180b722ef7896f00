import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from graphs.calculator import calculator
from graphs.execute import check_parts
from stages.envs.environment import opening_messages
from stages.episodes import PromptError


def test_the_system_message_counts_when_prompts_are_checked(config: Callable[..., Any]) -> None:
    """What is checked is what the environment opens with, not the bare prompt."""
    program = calculator(config())
    check_parts(program)
    assert program.parts is not None
    wordy = dataclasses.replace(program.parts, opening=lambda task: opening_messages(task, "answer " * 20))
    with pytest.raises(PromptError, match="expected prompts of at most 63 tokens"):
        check_parts(dataclasses.replace(program, parts=wordy))


def test_a_vocabulary_smaller_than_the_chat_is_refused(config: Callable[..., Any]) -> None:
    small = config().model.model_copy(update={"vocab_size": 10})
    with pytest.raises(ValueError, match=r"model\.vocab_size=10; raise it"):
        check_parts(calculator(config(model=small)))
