"""Against the real package, which is an optional one."""

import random

import anyio
import pytest

from stages.envs.adapters.textarena_env import TextArenaEnv, random_move
from stages.envs.housed import Housed
from stages.records import Message, Status, Task, ToolCall
from stages.tasks.seeds import seeded_tasks

pytest.importorskip("textarena")
pytestmark = [pytest.mark.extra, pytest.mark.slow]

KEY = (1, 2, 3, 0)
GUESS = seeded_tasks("GuessTheNumber-v0", [0])[0]
NOUGHTS = seeded_tasks("TicTacToe-v0", [0], prompt="Win.")[0]


async def search(env, task=GUESS, key=KEY):
    """Binary search; the guesses, the last reply and the score."""
    housed = Housed(lambda task: env)
    hosted = await housed.open(task)
    await hosted.reset(task, key)
    low, high, guesses = 1, 20, []
    while True:
        guesses.append((low + high) // 2)
        reply = await hosted.step(Message("assistant", f"I guess [{guesses[-1]}]."))
        if reply.end is not None:
            score = await hosted.score()
            await housed.close()
            return guesses, reply, score
        higher = "higher" in reply.messages[0].content
        low, high = (guesses[-1] + 1, high) if higher else (low, guesses[-1] - 1)


@pytest.fixture
def play(hold):
    def played(env, task, turns, key=KEY):
        opening, replies, score = hold(env, task, turns, key)
        return opening.messages[0].content, replies, score

    return played


def test_a_game_of_one_player_is_won():
    guesses, reply, score = anyio.run(search, TextArenaEnv())
    assert 1 <= len(guesses) <= 5
    assert reply.end is Status.FINISHED
    assert score == {"reward": 1.0, "invalid": 0.0}


def test_a_turn_reads_only_what_is_new(play):
    opening, (first, second), _ = play(TextArenaEnv(), GUESS, ["[1]", "[20]"])
    assert opening.startswith("You are Player 0. You are playing Guess The Number.")
    assert [reply.messages[0].content for reply in (first, second)] == [
        "The target number is higher.",
        "The target number is lower.",
    ]


def test_a_seat_is_played_against_a_script_and_the_game_repeats_by_its_key(play):
    def games(member):
        env = TextArenaEnv(num_players=2, player=1, opponent=random_move)
        opening, replies, score = play(env, NOUGHTS, ["4", "0", "8", "2", "6", "1", "3", "5", "7"], (1, 2, member, 0))
        return opening, [reply.messages for reply in replies], replies[-1].end, score["reward"]

    first = games(0)
    assert first[0].startswith("Win.\n\nYou are Player 1 in Tic Tac Toe.")
    assert "[Player 0]" in first[0]
    assert first[2] is Status.FINISHED
    assert first == games(0)
    assert len({str(games(member)) for member in range(4)}) > 1


def test_the_rules_of_the_game_end_it_at_invalid_moves(play):
    """S53."""
    _, replies, score = play(TextArenaEnv(), GUESS, ["[99]"] * 5)
    assert "invalid move" in replies[0].messages[0].content
    assert (replies[-1].end, len(replies)) == (Status.FINISHED, 2)
    assert score["invalid"] == 1.0
    assert score["reward"] < 1.0


def test_calls_are_answered_and_are_no_moves(play):
    """S49."""
    call = Message("assistant", "", (ToolCall("c", "guess", {}),))
    _, replies, score = play(TextArenaEnv(max_invalid=2), GUESS, [call, call])
    assert replies[0].messages[0].call_id == "c"
    assert replies[1].end is Status.TRUNCATED_TURNS
    assert score == {"reward": 0.0, "invalid": 0.0}


def test_the_seed_of_a_task_hides_the_same_number_from_all_and_a_key_alone_another_from_each():
    seeded = [anyio.run(search, TextArenaEnv(), GUESS, (1, 2, member, 0))[0][-1] for member in range(6)]
    assert len(set(seeded)) == 1
    task = Task("t", "", extra={"env_id": "GuessTheNumber-v0"})
    assert len({anyio.run(search, TextArenaEnv(), task, (1, 2, member, 0))[0][-1] for member in range(6)}) > 1


def test_games_at_once_are_the_games_they_are_alone_and_leave_the_generator_of_the_program_alone():
    tasks = seeded_tasks("GuessTheNumber-v0", range(8))
    alone = [anyio.run(search, TextArenaEnv(), task)[0] for task in tasks]
    together: dict[int, list[int]] = {}

    async def one(index):
        together[index] = (await search(TextArenaEnv(), tasks[index]))[0]

    async def run():
        async with anyio.create_task_group() as group:
            for index in range(len(tasks)):
                group.start_soon(one, index)

    random.seed(5)
    expected = random.Random(5).random()
    anyio.run(run)
    assert random.random() == expected
    assert [together[index] for index in range(len(tasks))] == alone


def test_seats_that_nobody_plays_are_refused():
    with pytest.raises(ValueError, match=r"expected a seat from 0 to 1 and an opponent.*give opponent="):
        TextArenaEnv(num_players=2)
