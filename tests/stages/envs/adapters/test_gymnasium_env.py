"""Against the real package, which is an optional one."""

import numpy as np
import pytest

from stages.envs.adapters.gymnasium_env import GymnasiumEnv
from stages.records import Message, Status, Task, ToolCall
from stages.tasks.seeds import seeded_tasks

gymnasium = pytest.importorskip("gymnasium")
pytestmark = pytest.mark.extra

KEY = (1, 2, 3, 0)
FIXED = {"is_slippery": False}


@pytest.fixture
def play(hold):
    def played(env, task, turns, key=KEY):
        opening, replies, score = hold(env, task, turns, key)
        return opening.messages, replies, score

    return played


def lake(**options):
    return seeded_tasks("FrozenLake-v1", [0], prompt="Cross the lake.", options=options)[0]


def test_a_lake_is_crossed_in_words(play):
    opening, replies, score = play(GymnasiumEnv(), lake(**FIXED), ["down", "Down!", "right", "DOWN", "right", "go right"])
    assert opening[0].content.startswith("Cross the lake.\n\nPFFF\nFHFH\nFFFH\nHFFG\n\nAnswer with one of: left, down")
    assert replies[0].messages == (Message("user", "SFFF\nPHFH\nFFFH\nHFFG"),)
    assert [reply.end for reply in replies] == [None] * 5 + [Status.FINISHED]
    assert replies[-1].messages == (Message("user", "SFFF\nFHFH\nFFFH\nHFFP"),)
    assert [reply.reward for reply in replies] == [0.0] * 5 + [1.0]
    assert score == {"reward": 1.0}


def test_a_hole_finishes_and_a_limit_truncates_and_both_keep_the_last_observation(play):
    """S42."""
    _, fallen, score = play(GymnasiumEnv(), lake(**FIXED), ["down", "right"])
    assert (fallen[-1].end, fallen[-1].messages[0].content) == (Status.FINISHED, "SFFF\nFPFH\nFFFH\nHFFG")
    assert score == {"reward": 0.0}
    _, cut, _ = play(GymnasiumEnv(), lake(**FIXED, max_episode_steps=2), ["down", "down"])
    assert (cut[-1].end, cut[-1].messages[0].content) == (Status.TRUNCATED_TURNS, "SFFF\nFHFH\nPFFH\nHFFG")
    assert cut[-1].reason == "cut by the environment's own limit"


def test_invalid_turns_are_answered_move_nothing_and_end_the_episode_when_too_many(play):
    """S53."""
    call = Message("assistant", "down", (ToolCall("c", "go", {}),))
    _, replies, _ = play(GymnasiumEnv(max_invalid=2), lake(**FIXED), ["hm", "down", call, "north"])
    assert replies[0].messages[0].content == "error: expected one of left, down, right, up, got 'hm'"
    assert replies[1].messages[0].content == "SFFF\nPHFH\nFFFH\nHFFG"
    assert [message.role for message in replies[2].messages] == ["tool", "user"]
    assert [reply.reward for reply in replies] == [0.0] * 4
    assert (replies[3].end, replies[3].reason) == (Status.TRUNCATED_TURNS, "2 invalid actions in a row")


def test_the_seed_of_a_task_decides_where_it_begins_and_the_key_what_follows(play):
    """Blackjack deals at random from the start; members of a group get one hand and draw their own cards."""
    task = seeded_tasks("Blackjack-v1", [5])[0]
    openings, draws = set(), set()
    for member in range(12):
        opening, replies, _ = play(GymnasiumEnv(), task, ["hit"], (1, 2, member, 0))
        openings.add(opening[0].content)
        draws.add(replies[0].messages[0].content)
    assert len(openings) == 1
    assert len(draws) > 1
    again = [play(GymnasiumEnv(), task, ["hit", "hit"], (1, 2, 3, 0)) for _ in range(2)]
    assert again[0] == again[1]


def test_without_a_seed_the_key_decides_where_it_begins(play):
    task = Task("t", "", extra={"env_id": "Taxi-v4"})
    openings = [play(GymnasiumEnv(), task, [], (1, 2, 0, retry))[0][0].content for retry in (0, 0, 1, 2, 3)]
    assert openings[0] == openings[1]
    assert len(set(openings)) > 1


@pytest.mark.parametrize("env_id", ["FrozenLake8x8-v1", "CliffWalking-v1", "Taxi-v4", "Blackjack-v1", "CartPole-v1"])
def test_every_action_of_the_toy_environments_has_a_name(play, env_id):
    space = gymnasium.make(env_id).action_space
    opening, _, _ = play(GymnasiumEnv(opening="{actions}"), seeded_tasks(env_id, [0])[0], [])
    names = opening[0].content.split(", ")
    assert len(names) == space.n
    for name in names:
        _, replies, _ = play(GymnasiumEnv(), seeded_tasks(env_id, [0])[0], [name])
        assert not replies[0].messages[0].content.startswith("error")


def test_the_taxi_is_where_the_environment_says(play):
    """The state by Gymnasium's own decoder."""
    env = gymnasium.make("Taxi-v4")
    row, column, passenger, destination = env.unwrapped.decode(env.reset(seed=7)[0])
    opening, _, _ = play(GymnasiumEnv(), seeded_tasks("Taxi-v4", [7])[0], [])
    assert f"Taxi at row {row}, column {column}. Passenger at {'RGYB'[passenger]} (" in opening[0].content
    assert f"Destination {'RGYB'[destination]} (" in opening[0].content


def test_the_cliff_and_the_cards_are_what_the_environment_says(play):
    """The observations by Gymnasium itself."""
    env = gymnasium.make("CliffWalking-v1")
    row, column = divmod(env.reset(seed=0)[0], 12)
    opening, replies, _ = play(GymnasiumEnv(opening="{observation}"), seeded_tasks("CliffWalking-v1", [0])[0], ["up"])
    assert opening[0].content.splitlines()[row][column] == "P"
    assert opening[0].content.splitlines()[3][1:] == "C" * 10 + "G"
    row, column = divmod(env.step(0)[0], 12)
    assert replies[0].messages[0].content.splitlines()[row][column] == "P"
    total, dealer, ace = gymnasium.make("Blackjack-v1").reset(seed=4)[0]
    opening, _, _ = play(GymnasiumEnv(opening="{observation}"), seeded_tasks("Blackjack-v1", [4])[0], [])
    assert opening[0].content.startswith(f"You have {total}")
    assert opening[0].content.endswith(f"The dealer shows {dealer}.")
    assert ("an ace" in opening[0].content) == bool(ace)


def test_an_environment_of_ones_own_is_closed_once_and_told_by_its_spaces(play):
    closed = []

    class Own(gymnasium.Env):
        action_space = gymnasium.spaces.Discrete(2, start=1)
        observation_space = gymnasium.spaces.Dict(
            {"at": gymnasium.spaces.Box(0, 1, (2,)), "say": gymnasium.spaces.Text(9), "turn": gymnasium.spaces.Discrete(3)}
        )

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return {"at": np.array([0.5, 1 / 3], np.float32), "say": "hello", "turn": 0}, {}

        def step(self, action):
            return {"at": np.zeros(2, np.float32), "say": f"took {action}", "turn": 1}, 0.25, True, True, {}

        def close(self):
            closed.append(1)

    opening, replies, score = play(GymnasiumEnv(lambda task: Own()), Task("t", "Go."), ["2"])
    assert opening[0].content == "Go.\n\nat: 0.5, 0.3333\nsay: hello\nturn: 0\n\nAnswer with one of: 1, 2."
    assert (replies[0].messages[0].content, replies[0].end) == ("at: 0, 0\nsay: took 2\nturn: 1", Status.FINISHED)
    assert score == {"reward": 0.25}
    assert closed == [1]


def test_a_continuous_action_space_is_refused_with_a_way_out(play):
    with pytest.raises(ValueError, match=r"expected a discrete action space; got Box.*in GymnasiumEnv\.reset; give make="):
        play(GymnasiumEnv(), seeded_tasks("Pendulum-v1", [0])[0], [])


def test_messages_are_bounded(play):
    opening, _, _ = play(GymnasiumEnv(max_chars=50), lake(**FIXED), [])
    assert len(opening[0].content) == 50
