"""What is said in the baseline's scripted training: every way that an episode of the calculator can go and be scored. Pure."""

from stages.records import Episode, Message, ToolCall
from stages.tasks.arithmetic import value_of

Key = tuple[int, int, int, int, int]


def said(conversation: str, key: Key) -> str | Message:
    """What member (birth, index) says in a turn; a ``graphs.bench.plain.Script``.

    Its way is one of five: asks the tool and answers with what it gave; guesses at once; asks for what cannot be calculated,
    and answers with something else; speaks until it is cut; asks again and again until no turn is left.
    """
    _, birth, member, _, turn = key
    expression = conversation.split("<|user|>")[1].split("<|")[0]
    asks = Message("assistant", "", (ToolCall(f"call-{turn}-0", "calculator", {"expression": expression}),))
    match (birth + member) % 5:
        case 0:
            return asks if turn == 0 else _given(conversation)
        case 1:
            first, second = map(int, expression.split("*"))
            return str(value_of((first, second), "*") // 1000 * 1000)
        case 2:
            wrong = Message("assistant", "", (ToolCall(f"call-{turn}-0", "calculator", {"expression": "1/0"}),))
            return wrong if turn == 0 else "no"
        case 3:
            return "1234567890"
        case _:
            return asks


def digits_said(episode: Episode) -> float:
    """Share of digits in what was said: a reward that tells apart what a policy says that has learned nothing."""
    text = "".join(message.content for message in episode.messages if message.role == "assistant")
    return sum(character.isdigit() for character in text) / max(len(text), 1)


def _given(conversation: str) -> str:
    """What the tool said last."""
    return conversation.split("<|tool|>")[-1].split("<|")[0]
