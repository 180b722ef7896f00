import asyncio

from stages.envs.task_env import TaskEnv
from stages.records import Message, Status, Task

TASK = Task("t", "2*3", "6")


def play(env):
    async def run():
        opening = await env.reset(TASK, (0, 0, 0, 0))
        reply = await env.step(Message("assistant", "6"))
        score = await env.score()
        await env.close()
        return opening, reply, score

    return asyncio.run(run())


def test_it_asks_once_and_takes_the_first_turn_as_the_answer():
    opening, reply, score = play(TaskEnv())
    assert (opening.messages, opening.tools) == ((Message("user", "2*3"),), ())
    assert (reply.messages, reply.end) == ((), Status.FINISHED)
    assert score is None


def test_a_scorer_sees_the_answer():
    opening, _, score = play(TaskEnv(system="Be brief.", scorer=lambda task, said: {"same": said[0].content == task.answer}))
    assert opening.messages[0] == Message("system", "Be brief.")
    assert score == {"same": True}
