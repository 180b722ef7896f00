"""Sample episodes as a page shows them: runs of tokens by who said them, numbers of each sampled one. Pure; no markup.

What models and tools said is text here, to be escaped by the page.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from graphs.report.axes import short
from graphs.report.record import FAILED, Row, RunRecord, Transcript, number
from graphs.runs.token_text import OBSERVATION, SAMPLED, TEMPLATE

MOST_SHOWN = 16
"""Episodes of a report."""
MOST_TOKENS = 16_000
"""Tokens of all of them: a page of less than 2 MB."""
FAR = 0.1
"""Nats of difference between engine and trainer from which on a token is marked."""
NAMES = {SAMPLED: "sampled", TEMPLATE: "template", OBSERVATION: "observation"}


@dataclass(frozen=True)
class Piece:
    """Text of one sampled token, or of tokens that were not sampled.

    Attributes:
        text: as it reads.
        kind: a value of ``NAMES``.
        numbers: behaviour and trainer log-probability, advantage and version, as the page's script reads them; empty where
            nothing was sampled.
        far: whether engine and trainer differ by ``FAR`` or more.
    """

    text: str
    kind: str
    numbers: str = ""
    far: bool = False


@dataclass(frozen=True)
class Turn:
    """Consecutive pieces of one side.

    Attributes:
        sampled: whether the policy said it.
        pieces: in order.
    """

    sampled: bool
    pieces: list[Piece]


@dataclass(frozen=True)
class Shown:
    """One episode.

    Attributes:
        title: which one it is.
        facts: how it ended and what it was worth, in few words each.
        turns: what was said.
        left_out: tokens that are not shown.
        why: why it ended as it did, in a line; empty where nothing is to be said.
        failed: whether it says nothing about the policy.
    """

    title: str
    facts: Sequence[str]
    turns: Sequence[Turn]
    left_out: int = 0
    why: str = ""
    failed: bool = False


def shown(record: RunRecord) -> list[Shown]:
    """Episodes token by token, evenly over the run; where none were kept, transcripts of a few."""
    if not record.samples:
        return [of_transcript(one) for one in record.transcripts]
    chosen = _evenly(record.samples, MOST_SHOWN)
    most = MOST_TOKENS // len(chosen)
    return [_of_sample(row, most) for row in chosen]


def of_transcript(one: Transcript) -> Shown:
    """An episode as text alone."""
    worth = [*_worth(one.reward, one.parts), *_expected(one.answer)]
    facts = [one.status.replace("_", " "), *worth, f"{one.num_sampled} sampled tokens"]
    turns = []
    for message in one.messages:
        said = message.get("role") == "assistant"
        calls = [_call(call) for call in message.get("calls") or () if isinstance(call, dict)]
        text = "\n".join([*([str(message["content"])] if message.get("content") else []), *calls])
        turns.append(Turn(said, [Piece(text, NAMES[SAMPLED] if said else NAMES[OBSERVATION])]))
    return Shown(
        _title(one.phase, None, one.task, one.birth, one.member, one.retry),
        facts,
        turns,
        why=one.error or "",
        failed=one.status in FAILED,
    )


def _of_sample(row: Row, most: int) -> Shown:
    texts, kinds = _list(row, "text"), str(row.get("kind", ""))
    columns = [_list(row, name) for name in ("behaviour", "trainer", "advantage", "version")]
    turns: list[Turn] = []
    for text, kind, *numbers in zip(texts[:most], kinds, *columns, strict=False):
        piece = _piece(str(text), kind, numbers)
        if not turns or turns[-1].sampled != (kind == SAMPLED):
            turns.append(Turn(kind == SAMPLED, []))
        _append(turns[-1].pieces, piece)
    parts = row.get("parts")
    facts = [
        str(row.get("status", "")).replace("_", " "),
        *_worth(row.get("reward"), parts if isinstance(parts, dict) else {}),
        *_expected(row.get("answer")),
        f"{kinds.count(SAMPLED)} sampled tokens",
    ]
    which = (row.get("phase"), row.get("step"), row.get("task"), row.get("birth"), row.get("member"), row.get("retry"))
    return Shown(
        _title(*which), facts, turns, max(len(texts) - most, 0), str(row.get("error") or ""), row.get("status") in FAILED
    )


def _piece(text: str, kind: str, numbers: Sequence[object]) -> Piece:
    if kind != SAMPLED:
        return Piece(text, NAMES.get(kind, NAMES[OBSERVATION]))
    behaviour, trainer, advantage, version = map(number, numbers)
    far = behaviour is not None and trainer is not None and abs(trainer - behaviour) >= FAR
    told = ["" if value is None else f"{value:.4g}" for value in (behaviour, trainer, advantage)]
    return Piece(text, NAMES[SAMPLED], ",".join([*told, "" if version is None else f"{version:.0f}"]), far)


def _append(pieces: list[Piece], piece: Piece) -> None:
    """Tokens that were not sampled have no numbers: those of one kind are one piece."""
    if pieces and not piece.numbers and pieces[-1].kind == piece.kind and not pieces[-1].numbers:
        pieces[-1] = Piece(pieces[-1].text + piece.text, piece.kind)
    else:
        pieces.append(piece)


def _worth(reward: object, parts: object) -> list[str]:
    value = number(reward)
    told = [f"reward {short(value)}"] if value is not None else ["no reward" if reward is None else f"reward {reward}"]
    if isinstance(parts, dict) and parts:
        each = [f"{name} {short(of) if (of := number(part)) is not None else part}" for name, part in parts.items()]
        told[0] += f" ({', '.join(each)})"
    return told


def _expected(answer: object) -> list[str]:
    text = "" if answer is None else str(answer)
    return [f"expected {text if len(text) <= 80 else text[:77] + '...'}"] if text else []


def _title(phase: object, step: object, task: object, birth: object, member: object, retry: object) -> str:
    again = f", retry {retry}" if retry else ""
    when = f"step {step}" if step is not None else str(phase or "").replace("_", " ")
    return f"{when}: task {task}, group {birth}, member {member}{again}"


def _call(call: Row) -> str:
    if "problem" in call:
        return f"[bad call: {call['problem']}]"
    arguments = call.get("arguments")
    told = ", ".join(f"{name}={value}" for name, value in arguments.items()) if isinstance(arguments, dict) else ""
    return f"{call.get('name', 'call')}({told})"


def _evenly(rows: Sequence[Row], most: int) -> list[Row]:
    if len(rows) <= most:
        return list(rows)
    return [rows[round(at * (len(rows) - 1) / (most - 1))] for at in range(most)]


def _list(row: Row, name: str) -> list[object]:
    value = row.get(name)
    return value if isinstance(value, list) else []
