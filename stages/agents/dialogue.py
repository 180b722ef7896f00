"""Several roles in one episode: they take turns, each with a conversation of its own, sampled by one policy.

One episode, not one for each role, since it has one reward, one place in its group and one status. Its tokens are a row for
each role: every role reads its own context from position 0, so no token stands in a context in which it was not sampled, and
each row is trained, or not, as its role declares. For roles with rewards against each other train one of them: the others are
its opponents, by the same policy.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stages.agents.agent import Ending, Setting
from stages.agents.conversation import Conversation, Ended, TurnCount
from stages.envs.environment import Reply
from stages.records import Message
from stages.text.transcript import Transcript


@dataclass(frozen=True)
class Role:
    """One of those who take turns.

    Attributes:
        name: in the record.
        system: its system message, in place of the environment's; ``None`` keeps that one.
        trained: whether what it says is trained.
    """

    name: str
    system: str | None = None
    trained: bool = True


class Dialogue:
    """An ``Agent`` of several roles.

    The first role opens with the environment's messages. After each turn the environment is asked. What it says is read by the
    next role, and where it says nothing, what was said is: as a user message. A role whose calls are answered speaks again.
    Every role hears all that was said since it last spoke. The budgets of turns are of all roles together, those of tokens of
    each.
    """

    def __init__(self, roles: Sequence[Role]):
        """Configure.

        Args:
            roles: in the order in which they speak.

        Raises:
            ValueError: there are fewer than two, two share a name, or none is trained.
        """
        names = [role.name for role in roles]
        if len(names) < 2 or len(set(names)) < len(names) or not any(role.trained for role in roles):
            raise ValueError(
                f"expected two roles or more, with names that differ, at least one of them trained; got {list(roles)}, "
                "in Dialogue(roles); for one role take a ModelAgent"
            )
        self._roles = tuple(roles)

    @property
    def sessions(self) -> int:
        """One for each role; see ``ManySessions``."""
        return len(self._roles)

    async def run(self, setting: Setting, transcript: Transcript) -> Ending:
        """See ``Agent.run``. Each role has a session of its own with the policy, which is released here."""
        turns = TurnCount()
        seats = [_Seat(role, setting, transcript, turns) for role in self._roles]
        transcript.messages.extend(setting.opening.messages)
        try:
            await _take_turns(seats, transcript)
        except Ended as over:
            return over.ending
        finally:
            for seat in seats:
                setting.policy.release(seat.talk.setting.session)


class _Seat:
    """A role with its conversation and what it has not heard yet."""

    def __init__(self, role: Role, setting: Setting, transcript: Transcript, turns: TurnCount):
        own = replace(setting, session=f"{setting.session}/{role.name}")
        self.talk = Conversation(own, transcript.branch(role.name, trained=role.trained), turns)
        messages = list(setting.opening.messages)
        if role.system is not None:
            messages = [Message("system", role.system), *(message for message in messages if message.role != "system")]
        self.unheard = messages

    async def speak(self) -> Message:
        if len(self.talk.transcript):
            self.talk.hear(self.unheard)
        else:
            self.talk.open(self.unheard)
        self.unheard = []
        return await self.talk.sample()


async def _take_turns(seats: Sequence[_Seat], transcript: Transcript) -> None:
    speaker = 0
    while True:
        seat = seats[speaker]
        message = await seat.speak()
        transcript.messages.append(message)
        heard = await _answered(seat, message, transcript)
        if message.calls:
            seat.unheard = heard
            continue
        for other in seats:
            if other is not seat:
                other.unheard.extend(heard or [Message("user", message.content)])
        speaker = (speaker + 1) % len(seats)


async def _answered(seat: _Seat, message: Message, transcript: Transcript) -> list[Message]:
    """What the environment says to a turn, also in the record of all."""
    before = len(seat.talk.transcript.messages)
    try:
        reply: Reply = await seat.talk.step(message)
    except Ended:
        transcript.messages.extend(seat.talk.transcript.messages[before:])
        raise
    transcript.messages.extend(reply.messages)
    return list(reply.messages)
