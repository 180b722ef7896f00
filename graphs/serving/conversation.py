"""Messages of OpenAI's form as ours, and a sampled turn as theirs. Pure: texts, ids and records only."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphs.serving.errors import Refused
from graphs.serving.wire import ChatCompletion, ChatMessage, ToolPart
from stages.records import BadCall, Message, ToolCall
from stages.text.chat import Chat, ToolSpec


@dataclass(frozen=True)
class Tool:
    """A tool that a request describes; a ``ToolSpec``."""

    name: str
    description: str
    parameters: dict[str, Any]


@dataclass(frozen=True)
class Opened:
    """A conversation whose next turn is to be sampled.

    Attributes:
        messages: so far.
        tools: that may be called.
        ids: int32 [T], to the end of the generation prompt.
        turn: number of the assistant's turn, for the ids of its calls.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    ids: np.ndarray
    turn: int


def opened(asked: ChatCompletion, chat: Chat) -> Opened:
    """The conversation of a request, written in the format of the model.

    Raises:
        Refused: no messages, or some that the format cannot hold.
    """
    if not asked.messages:
        raise Refused(400, "expected at least one message; got none, in messages; say something")
    messages = tuple(_message(message, f"messages[{place}]") for place, message in enumerate(asked.messages))
    tools = tuple(_tool(part) for part in asked.tools or ()) if asked.tool_choice != "none" else ()
    try:
        ids = chat.open(messages, tools)
    except ValueError as error:
        raise Refused(400, str(error)) from error
    return Opened(messages, tools, ids, sum(message.role == "assistant" for message in messages))


def said(ids: np.ndarray, conversation: Opened, chat: Chat, text: str) -> dict[str, Any]:
    """A sampled turn as an assistant's message.

    Args:
        ids: of the turn, its stop token included.
        conversation: that it belongs to.
        chat: reads calls.
        text: of the turn, without what ended it.

    Returns:
        ``content`` and ``tool_calls``. Where a call is not exactly right, all of the turn is content: there is no place for
        half a call, and a guessed one would be executed.
    """
    read = chat.read(ids, conversation.turn, conversation.tools) if conversation.tools else Message("assistant", text)
    calls = [call for call in read.calls if isinstance(call, ToolCall)]
    if not calls or len(calls) != len(read.calls):
        return {"role": "assistant", "content": text}
    return {"role": "assistant", "content": read.content or None, "tool_calls": [_written(call) for call in calls]}


def _written(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)}
    return {"id": call.id, "type": "function", "function": function}


def _message(message: ChatMessage, where: str) -> Message:
    content = message.content
    text = content if isinstance(content, str) else "".join(part.text for part in content or ())
    role = "system" if message.role == "developer" else message.role
    if role == "tool" and message.tool_call_id is None:
        raise Refused(400, f"expected the tool_call_id of the call that it answers; got none, in {where}; add it")
    if message.tool_calls and role != "assistant":
        raise Refused(400, f"expected tool_calls in an assistant's message only; got role {role}, in {where}; leave them out")
    calls = tuple(_call(part.id, part.function.name, part.function.arguments, where) for part in message.tool_calls or ())
    return Message(role, text, calls, message.tool_call_id)


def _call(name_id: str, name: str, arguments: str, where: str) -> ToolCall | BadCall:
    try:
        read = json.loads(arguments or "{}")
    except ValueError as error:
        raise Refused(400, f"expected arguments in JSON; got {error}, in {where}.tool_calls; write an object") from error
    if not isinstance(read, dict):
        raise Refused(
            400, f"expected arguments as an object; got {type(read).__name__}, in {where}.tool_calls; write an object"
        )
    return ToolCall(name_id, name, read)


def _tool(part: ToolPart) -> Tool:
    function = part.function
    return Tool(function.name, function.description, function.parameters)
