"""What an agent is: it asks a policy for turns and an environment for answers, and writes the token record.

An agent decides what the policy sees. It does not decide what is right (the environment does), nor what becomes of an episode
that fails (``episodes.py`` does): errors of the policy and of the environment pass through it.
"""

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import msgspec

from stages.agents.sampling import SamplingConfig
from stages.envs.environment import Environment, Opening
from stages.policy import Policy
from stages.records import Status
from stages.text.chat import Chat
from stages.text.transcript import Transcript


class Ending(msgspec.Struct, frozen=True):
    """How an episode ended that did not fail."""

    status: Literal[Status.FINISHED, Status.TRUNCATED_LENGTH, Status.TRUNCATED_TURNS]
    reason: str | None = None
    """One line on what cut it short; ``None`` where it finished."""


@dataclass(frozen=True)
class Setting:
    """What an agent has for one episode.

    Attributes:
        policy: samples turns.
        chat: writes and reads them.
        env: answers them.
        opening: how the environment began.
        sampling: temperature and budgets.
        key: (seed, birth, member, retry); with the number of the turn it is the key of a request.
        session: name of the episode for the policy's cache.
    """

    policy: Policy
    chat: Chat
    env: Environment
    opening: Opening
    sampling: SamplingConfig
    key: tuple[int, int, int, int]
    session: str


class Agent(Protocol):
    """A way of holding a conversation. One object serves many episodes at once, so it keeps nothing of one."""

    async def run(self, setting: Setting, transcript: Transcript) -> Ending:
        """Hold one conversation to its end.

        Args:
            setting: what there is to work with.
            transcript: an empty one; every token goes into it as it comes, so that it is whole whenever this is cut short.
        """
        ...


@runtime_checkable
class ManySessions(Protocol):
    """An ``Agent`` that talks to the policy in several sessions of its own in one episode."""

    @property
    def sessions(self) -> int:
        """Most sessions that an episode holds at once."""
        ...


def sessions_of(agent: Agent) -> int:
    """Most sessions with the policy that an episode of an agent holds at once: one where it does not say."""
    return agent.sessions if isinstance(agent, ManySessions) else 1
