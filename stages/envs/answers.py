"""What an environment answered, checked once and copied into records of our own: nothing after reads what it gave. Pure.

Read wherever an environment is not ours to trust: by the guards of an episode, by ``check_env`` and by ``headrace try``.
Whatever an answer does while it is read is its own fault: each function here gives a sound copy, or raises ``AnswerError``.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

import msgspec

from stages.envs.environment import Opening, Reply
from stages.envs.shown_tool import ShownTool
from stages.records import BadCall, Message, Status, ToolCall
from stages.tools.tool import needs_of

P = ParamSpec("P")
T = TypeVar("T")

_ENDS = (Status.FINISHED, Status.TRUNCATED_TURNS)


class AnswerError(ValueError):
    """An environment's answer is none; the message is one line, expected and got."""


def _judged(check: Callable[P, T]) -> Callable[P, T]:
    """A check that raises ``AnswerError`` and nothing else."""

    @functools.wraps(check)
    def judged(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return check(*args, **kwargs)
        except AnswerError:
            raise
        # Whatever somebody's object does when it is looked at.
        except Exception as error:
            told = " ".join(_shown(error, 200).split())
            raise AnswerError(f"expected an answer that can be read, got {type(error).__name__}: {told}") from error

    return judged


@_judged
def checked_opening(opening: Any) -> Opening:
    """The beginning of a conversation, its tools as they are shown.

    Raises:
        AnswerError: it is none.
    """
    if not isinstance(opening, Opening):
        raise AnswerError(f"expected an Opening, got {type(opening).__name__}")
    messages = _messages(opening.messages, ("system", "user", "assistant"))
    if not messages:
        raise AnswerError("expected at least one message, got none")
    given: Any = opening.on_invalid
    if given is not None and not (isinstance(given, str) and given in ("answer", "end")):
        raise AnswerError(f"expected on_invalid to be answer, end or None, got {_shown(repr(given))}")
    tools = tuple(map(_shown_tool, _sequence(opening.tools, "tools")))
    names = [tool.name for tool in tools]
    if len(set(names)) < len(names):
        raise AnswerError(f"expected tools with names that differ, got {names}")
    return Opening(messages, tools, given)


@_judged
def checked_reply(message: Message, reply: Any, tools: Sequence[ShownTool]) -> Reply:
    """The answer to a turn.

    Where the episode goes on, every call of a tool that is shown is answered once, under its own id. A model also calls what
    is not there; an environment may answer that, and where it does not, an error is added here.

    Args:
        message: the turn.
        reply: what the environment answered.
        tools: what it shows.

    Raises:
        AnswerError: it is none.
    """
    if not isinstance(reply, Reply):
        raise AnswerError(f"expected a Reply, got {type(reply).__name__}")
    end: Any = reply.end
    if end is not None and not (isinstance(end, Status) and end in _ENDS):
        raise AnswerError(f"expected an end of Status.FINISHED, Status.TRUNCATED_TURNS or None, got {_shown(repr(end))}")
    reason = None if reply.reason is None else _text(reply.reason, "a reason of one line or None")
    reward = None if reply.reward is None else _number("the reward of a turn", reply.reward)
    messages = _messages(reply.messages, ("tool", "user"))
    wanted = [call.id for call in message.calls]
    got = [str(answer.call_id) for answer in messages if answer.role == "tool"]
    names, missing = {tool.name for tool in tools}, [call for call in message.calls if call.id not in got]
    left_out = end is None and any(isinstance(call, ToolCall) and call.name in names for call in missing)
    if left_out or not set(got) <= set(wanted) or len(set(got)) < len(got):
        most = "one" if end is None else "at most one"
        raise AnswerError(f"expected {most} tool message for each of the calls {wanted}, got answers to {got}")
    if end is not None:
        return Reply(messages, end, reason, reward)
    return Reply((*(_not_there(call, names) for call in missing), *messages), end, reason, reward)


@_judged
def checked_score(parts: Any) -> dict[str, float] | None:
    """A score as plain numbers.

    Raises:
        AnswerError: it is none.
    """
    if parts is None:
        return None
    if not isinstance(parts, dict):
        raise AnswerError(f"expected rewards by name of their part, got {type(parts).__name__}")
    return {_text(name, "names of parts"): _number(name, value) for name, value in tuple(parts.items())}


def _not_there(call: ToolCall | BadCall, names: set[str]) -> Message:
    if isinstance(call, BadCall):
        problem = call.problem
    else:
        problem = f"expected one of {', '.join(sorted(names))}" if names else "expected text without a call: no tool is here"
        problem += f", got {call.name[:40]}"
    return Message("tool", f"error: {problem}", call_id=call.id)


def _number(name: str, value: Any) -> float:
    number = math.nan
    # An array of one element is a number to ``float``, text of digits too.
    if hasattr(value, "__float__") and getattr(value, "shape", ()) == ():
        try:
            number = float(value)
        except (ArithmeticError, ValueError, TypeError):  # 10**400, a signalling NaN
            number = math.nan
    if not math.isfinite(number):
        raise AnswerError(f"expected a finite number in {name}, got {_shown(value)}")
    return number


def _shown_tool(tool: Any) -> ShownTool:
    if not all(hasattr(tool, name) for name in ("name", "description", "parameters", "call")):
        raise AnswerError(f"expected tools, got {type(tool).__name__}")
    name, description = _text(tool.name, "a tool's name"), _text(tool.description, "a tool's description")
    if not isinstance(tool.parameters, Mapping):
        raise AnswerError(f"expected a schema of {name[:40]}'s arguments, got {type(tool.parameters).__name__}")
    # Through JSON, which every chat writes it in: a deep copy, and nothing that a chat cannot write.
    schema = msgspec.json.decode(msgspec.json.encode(dict(tool.parameters)), type=dict[str, Any])
    return ShownTool(name, description, schema, dict(needs_of(tool)))


def _messages(messages: Any, roles: tuple[str, ...]) -> tuple[Message, ...]:
    return tuple(_message(message, roles) for message in _sequence(messages, "messages"))


def _message(message: Any, roles: tuple[str, ...]) -> Message:
    if not isinstance(message, Message):
        raise AnswerError(f"expected messages, got {type(message).__name__}")
    role = _text(message.role, "a role")
    if role not in roles:
        raise AnswerError(f"expected messages of {', '.join(roles)}, got one of {role[:40]}")
    content = _text(message.content, "messages with text")
    calls = tuple(map(_call, _sequence(message.calls, "calls")))
    if calls and role != "assistant":
        raise AnswerError(f"expected calls in messages of assistant alone, got them in one of {role}")
    answers = None if message.call_id is None else _text(message.call_id, "the id of a call")
    return Message(role, content, calls, answers)  # type: ignore[arg-type]  # one of the roles


def _call(call: Any) -> ToolCall | BadCall:
    if isinstance(call, BadCall):
        return BadCall(_text(call.id, "the id of a call"), _text(call.problem, "the problem of a call"))
    if not isinstance(call, ToolCall):
        raise AnswerError(f"expected calls, got {type(call).__name__}")
    arguments = msgspec.json.decode(msgspec.json.encode(call.arguments), type=dict[str, Any])
    return ToolCall(_text(call.id, "the id of a call"), _text(call.name, "the name of a tool"), arguments)


def _sequence(given: Any, what: str) -> tuple[Any, ...]:
    """The members. An iterator is refused: reading it runs code of the environment's, without a limit, and uses it up."""
    if not isinstance(given, tuple | list):
        raise AnswerError(f"expected a tuple of {what}, got {type(given).__name__}")
    return tuple(given)


def _text(given: Any, what: str) -> str:
    """Plain text. What no file could hold, a lone surrogate, becomes ``?``."""
    if not isinstance(given, str):
        raise AnswerError(f"expected {what}, got {type(given).__name__}")
    plain = str.__str__(given)
    return plain if plain.isascii() else plain.encode(errors="replace").decode()


def _shown(value: Any, most: int = 40) -> str:
    """The beginning of its text; of what has none, its type."""
    try:
        return str(value)[:most]
    # As above; an integer of many digits has no text either.
    except Exception:
        return type(value).__name__
