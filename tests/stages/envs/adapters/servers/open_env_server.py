"""A server made with the openenv package, for test_open_env.py: guess a number. Prints its port once it listens.

Takes no part in the tests of this folder: another interpreter may run it, since openenv and verifiers cannot be installed
together.
"""

import random
import socket

import uvicorn
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Guess(Action):
    number: int


class Hint(Observation):
    text: str
    truncated: bool | None = None


class GuessTheNumber(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, top=100, **rest):
        self.secret, self.turns = random.Random(seed).randint(1, top), 0
        return Hint(text=f"from 1 to {top}")

    def step(self, action, timeout_s=None, **rest):
        self.turns += 1
        if action.number == 0:
            raise RuntimeError("the number zero broke it")
        if action.number == self.secret:
            return Hint(text="right", reward=1.0, done=True)
        if self.turns == 7:
            return Hint(text=f"it was {self.secret}", reward=0.0, done=True, truncated=True)
        return Hint(text="higher" if action.number < self.secret else "lower", reward=-0.125)

    @property
    def state(self):
        return State(step_count=self.turns)


if __name__ == "__main__":
    app = create_fastapi_app(GuessTheNumber, Guess, Hint, max_concurrent_envs=3)
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run([listening])
