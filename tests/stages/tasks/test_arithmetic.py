import pytest

from stages.records import ToolCall
from stages.tasks.arithmetic import (
    DEMONSTRATIONS,
    ArithmeticConfig,
    arithmetic_task,
    arithmetic_tasks,
    demonstrations,
    main,
    value_of,
)
from stages.tasks.examples import read_examples
from stages.tools.calculator import evaluate

CONFIG = ArithmeticConfig(operators="+-*", digits=(1, 2, 2), heldout_share=0.2)


def test_answers_equal_those_of_the_calculator():
    for task in arithmetic_tasks(CONFIG, 0, 300, "train"):
        assert task.answer == str(evaluate(task.extra["expression"])), task
        assert task.prompt == task.extra["expression"]


def test_multiplication_goes_before_addition():
    assert value_of([1, 2, 3, 4], ["+", "*", "-"]) == 1 + 2 * 3 - 4


def test_training_and_heldout_questions_never_meet():
    """Under any two seeds; the space here is small enough that they would."""
    narrow = ArithmeticConfig(operators="+", digits=(1, 1), heldout_share=0.3)
    train = {task.prompt for seed in range(3) for task in arithmetic_tasks(narrow, seed, 300, "train")}
    heldout = {task.prompt for seed in range(3) for task in arithmetic_tasks(narrow, seed, 300, "heldout")}
    assert train.isdisjoint(heldout)
    assert len(train | heldout) == 100
    assert 15 <= len(heldout) <= 45


def test_a_task_is_a_function_of_seed_and_index():
    assert arithmetic_tasks(CONFIG, 5, 20, "train")[7] == arithmetic_task(CONFIG, 5, 7, "train")
    assert arithmetic_task(CONFIG, 5, 7, "train").prompt != arithmetic_task(CONFIG, 6, 7, "train").prompt
    ids = {task.id for split in ("train", "heldout") for task in arithmetic_tasks(CONFIG, 5, 50, split)}
    assert len(ids) == 100


def test_operands_have_the_digits_asked_for():
    wide = ArithmeticConfig(operators="+", digits=(4, 1, 2))
    lengths = {tuple(map(len, task.prompt.split("+"))) for task in arithmetic_tasks(wide, 0, 300, "train")}
    assert lengths == {(4, 1, 2)}


def test_a_prompt_of_words_can_be_asked_for():
    task = arithmetic_task(ArithmeticConfig(prompt="What is {expression}?"), 0, 0, "heldout")
    assert task.prompt == f"What is {task.extra['expression']}?"


def test_impossible_configs_are_refused():
    with pytest.raises(ValueError, match="digits"):
        ArithmeticConfig(digits=(3,))
    with pytest.raises(ValueError, match="operators"):
        ArithmeticConfig(operators="/")
    with pytest.raises(ValueError, match="of the heldout set within 1000 draws; got none"):
        arithmetic_task(ArithmeticConfig(operators="+", digits=(1, 1), heldout_share=1e-9), 0, 0, "heldout")


def test_demonstrations_use_the_tool_in_the_share_asked_for_and_estimate_otherwise():
    made = demonstrations(ArithmeticConfig(), seed=0, num_examples=400, share_with_tool=0.3)
    with_tool = [e for e in made if len(e.messages) == 4]
    guessed = [e for e in made if len(e.messages) == 2]
    assert (len(with_tool), len(guessed)) == (120, 280)
    for example in with_tool:
        asked, called, answered, said = example.messages
        (call,) = called.calls
        assert isinstance(call, ToolCall)
        assert call.arguments == {"expression": asked.content}
        assert answered.content == said.content == str(evaluate(asked.content))
        assert answered.call_id == call.id
    right = [e for e in guessed if e.messages[1].content == str(evaluate(e.messages[0].content))]
    assert len(right) < 0.05 * len(guessed)
    assert all(set(e.messages[1].content[1:]) == {"0"} for e in guessed)
    errors = [abs(int(e.messages[1].content) / evaluate(e.messages[0].content) - 1) for e in guessed]
    assert max(errors) < 0.5


def test_the_file_of_demonstrations_is_the_one_the_command_writes(tmp_path):
    main(["--output", str(tmp_path / "made.jsonl")])
    assert (tmp_path / "made.jsonl").read_bytes() == DEMONSTRATIONS.read_bytes()
    assert DEMONSTRATIONS.stat().st_size < 400_000
    assert len(read_examples(DEMONSTRATIONS)) == 2000
