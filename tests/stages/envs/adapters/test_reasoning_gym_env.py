"""Against the real package, which is an optional one."""

import anyio
import psutil
import pytest

from stages.envs.adapters.reasoning_gym_env import ReasoningGymEnv
from stages.records import Message, Status
from stages.tasks.reasoning_gym import reasoning_gym_tasks

pytest.importorskip("reasoning_gym")
pytestmark = [pytest.mark.extra, pytest.mark.slow]

PAIR = {"min_terms": 2, "max_terms": 2}


def answer(texts, name="chain_sum", config=PAIR, **knobs):
    """Play one task with each of the texts, all in one loop, as a run would."""
    task = reasoning_gym_tasks(name, 1, 3, config=config)[0]

    async def run():
        scores = []
        for text in texts:
            env = ReasoningGymEnv(**knobs)
            opening = await env.reset(task, (0, 0, 0, 0))
            assert opening.messages[-1] == Message("user", task.prompt)
            if text is not None:
                assert (await env.step(Message("assistant", text.format(task.answer)))).end is Status.FINISHED
            scores.append(await env.score())
            await env.close()
        return scores

    return anyio.run(run)


def test_an_answer_is_scored_by_its_data_set_and_processes_end_with_the_loop():
    before = psutil.Process().children()
    texts = ["{}", "I think <answer>1</answer>, no, <answer> {} </answer>", "a million", "", None]
    right, tagged, wrong, empty, none = answer(texts)
    assert right == tagged == {"reward": 1.0, "unscored": 0.0}
    assert wrong["reward"] < 1
    assert empty == none == {"reward": 0.0, "unscored": 0.0}
    assert psutil.Process().children() == before


def test_an_answer_whose_scorer_takes_for_ever_scores_nothing_and_the_next_is_scored():
    """Countdown evaluates the answer as an expression."""
    before = psutil.Process().children()
    late, good = answer(["9**9**9**9", "<answer>{}</answer>"], "countdown", {}, score_s=0.5)
    assert late == {"reward": 0.0, "unscored": 1.0}
    assert good == {"reward": 1.0, "unscored": 0.0}
    assert psutil.Process().children() == before


def test_an_answer_whose_scorer_raises_scores_nothing():
    assert answer(["two times three"], "prime_factorization", {}) == [{"reward": 0.0, "unscored": 1.0}]
