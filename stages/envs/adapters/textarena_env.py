"""A game of TextArena: the model plays one seat, scripts play the others.

The task says which game (``stages/tasks/seeds.py`` makes such tasks). What the game told a player since that player's last move
is the observation; the whole history, which most games' own wrappers repeat each time, is in the conversation anyway.

TextArena draws from the one generator of Python's ``random`` module. Each game here has a state of its own for it, put in place
while the game runs; games that draw from NumPy's (IteratedStagHunt, SpellingBee) do not repeat.
"""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from stages.envs.adapters.key import seed_of
from stages.envs.adapters.turns import InvalidActions
from stages.envs.custom import CustomEnv, over
from stages.envs.environment import Reply
from stages.packages import optional_package
from stages.records import Message, Task
from stages.tools.tool import bounded

Opponent = Callable[[int, str, random.Random], str]
"""Seat, what the game told it since its last move, and a generator of this game's own -> its move."""

MAX_MOVES = 1000
"""Most moves of opponents between two of the model's, against a game that never lets it play."""

_RANDOM = threading.Lock()


class TextArenaEnv(CustomEnv):
    """One game. It is finished by the game's rules, its own limit of turns and of invalid moves included.

    The score's part ``reward`` is what the game gave the model's seat, 0 where it did not end; ``invalid`` is 1 where that seat
    ended it by an invalid move.
    """

    def __init__(
        self,
        *,
        num_players: int = 1,
        player: int = 0,
        opponent: Opponent | None = None,
        max_invalid: int = 3,
        max_chars: int = 4000,
    ):
        """Configure.

        Args:
            num_players: seats of the game.
            player: the model's seat, from 0.
            opponent: plays every other seat; ``None`` for games of one player.
            max_invalid: the episode ends after so many turns in a row that call a tool instead of playing. Moves that the game
                refuses are counted by the game.
            max_chars: most characters of a message.

        Raises:
            ValueError: seats that nobody plays.
        """
        if not 0 <= player < num_players or (num_players > 1 and opponent is None):
            raise ValueError(
                f"expected a seat from 0 to {num_players - 1} and an opponent for the others; got player={player}, "
                f"num_players={num_players}, opponent={opponent}, in TextArenaEnv; give opponent= a function"
            )
        self._num_players, self._player, self._opponent = num_players, player, opponent
        self._max_invalid, self._max_chars = max_invalid, max_chars
        self._game: Any = None
        self._state: Any = None

    def reset(self, task: Task, key: tuple[int, int, int, int]) -> str:
        """See ``Environment.reset``. The task's seed decides where all members of its group begin, the key what follows.

        Raises:
            MissingPackageError: TextArena is not installed.
        """
        self._invalid, self._scripted = InvalidActions(self._max_invalid), random.Random(f"opponent {key}")
        text, _ = self._begin(task, key)
        return bounded(f"{task.prompt}\n\n{text}".strip(), self._max_chars)

    def step(self, message: Message) -> Reply | str:
        """See ``Environment.step``."""
        if message.calls:
            return self._invalid.refuse(message, "a move as text", self._max_chars)
        self._invalid.accept()
        text, done = self._move(message.content)
        text = bounded(text, self._max_chars)
        return over(text or None) if done else text

    def score(self) -> dict[str, float]:
        """See ``Environment.score``."""
        rewards, told = self._game.close()
        reward = float((rewards or {}).get(self._player, 0.0))
        return {"reward": reward, "invalid": float(bool(told.get(self._player, {}).get("invalid_move", False)))}

    def _begin(self, task: Task, key: tuple[int, int, int, int]) -> tuple[str, bool]:
        seed = task.extra.get("seed")
        package = optional_package("textarena", "textarena", "TextArenaEnv")
        first = seed_of(key) if seed is None else seed
        self._state = random.Random(first).getstate()
        with self._own_random():
            self._game = _make(package, task.extra["env_id"], task.extra.get("options", {}))
            self._game.reset(num_players=self._num_players, seed=first)
            if seed is not None:
                random.seed(f"after the start {key}")
        return self._until_our_turn(done=False)

    def _move(self, action: str) -> tuple[str, bool]:
        with self._own_random():
            done, _ = self._game.step(action=action)
        return self._until_our_turn(done=done)

    def _until_our_turn(self, *, done: bool) -> tuple[str, bool]:
        """Let the opponents move; gives what the model's seat was told meanwhile, and whether the game is over."""
        for _ in range(MAX_MOVES):
            with self._own_random():
                seat = self._game.state.current_player_id
                if done or seat == self._player:
                    return self._told(self._player), done
                assert self._opponent is not None
                move = self._opponent(seat, self._told(seat), self._scripted)
                done, _ = self._game.step(action=move)
        raise RuntimeError(
            f"expected a turn of player {self._player}; got {MAX_MOVES} moves of others, in TextArenaEnv; see what they play"
        )

    def _told(self, seat: int) -> str:
        """What the game told a seat since it was asked last; its own moves are not repeated to it."""
        state = self._game.state
        told, state.observations[seat] = state.observations[seat], []
        return "\n".join(text if sender < 0 else f"[Player {sender}] {text}" for sender, text, _ in told if sender != seat)

    @contextmanager
    def _own_random(self) -> Iterator[None]:
        with _RANDOM:
            outside = random.getstate()
            random.setstate(self._state)
            try:
                yield
            finally:
                self._state = random.getstate()
                random.setstate(outside)


def random_move(seat: int, told: str, chance: random.Random) -> str:
    """An opponent that plays any move the game last offered in square brackets."""
    moves = [part.split("]")[0] for part in told.splitlines()[-1].split("[")[1:]] if told else []
    return f"[{chance.choice(moves)}]" if moves else "[pass]"


def _make(package: Any, env_id: str, options: dict[str, Any]) -> Any:
    """The game without the wrappers that repeat its history."""
    game = package.make(env_id, **options)
    actions = []
    while isinstance(game, package.Wrapper):
        if isinstance(game, package.ActionWrapper):
            actions.append(type(game))
        game = game.env
    for wrapper in reversed(actions):
        game = wrapper(game)
    return game
