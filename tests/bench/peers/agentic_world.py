"""The work that every system is given: tasks, what the world answers and when, what earns a reward. Read from one JSON file.

A task shows a word. Whatever the policy says in a turn is answered with how many of its letters are vowels, after the delay
that the file has for this task, member and turn; after the last turn the episode is over. An episode that is drawn to fail
fails when its first turn is to be answered, once: tried again it goes well. A turn earns the share of vowels in what
was said, nothing where it was cut before its end token; an episode earns the mean over the turns that it should have had.
Nothing here is drawn: delays and failures stand in the file, so every system meets the same ones. Only the standard library,
since it is imported in the environments of all systems.
"""

import json
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

VOWELS = frozenset("aeiou")
FEWEST = 8
"""Letters of a turn: with fewer, missing ones count as other letters. Beyond that a turn earns the same whatever its length, so
lengths stay about as they were while the policy learns, and systems that learn at other speeds do the same work."""
MARKS = re.compile(r"(<\|[a-z]+\|>)")


class Failed(RuntimeError):
    """The episode was drawn to fail."""


class Task(NamedTuple):
    """A task of the file.

    Attributes:
        name: unique.
        prompt: what the user says.
        delays: seconds before the answer to a turn, by member and turn.
        fails: whether the first try of a member fails, by member.
    """

    name: str
    prompt: str
    delays: Sequence[Sequence[float]]
    fails: Sequence[bool]


class Workload(NamedTuple):
    """All that a system reads.

    Attributes:
        model: folder of the weights, as Hugging Face's Llama.
        tokens: text of each token id.
        tasks: in the order in which they are trained.
        group_size: episodes of a task.
        groups_per_update: tasks of an update.
        updates: so many.
        turns: of an episode.
        prompt_tokens: of the longest prompt.
        response_tokens: most of an episode after its prompt, what the world says included.
        learning_rate: of Adam.
        spread: deviation of the logarithm of the lengths that the policy is shown before.
        seed: of all sampling.
    """

    model: str
    tokens: Sequence[str]
    tasks: Sequence[Task]
    group_size: int
    groups_per_update: int
    updates: int
    turns: int
    prompt_tokens: int
    response_tokens: int
    learning_rate: float
    spread: float
    seed: int


def write(workload: Workload, path: Path) -> None:
    """As JSON."""
    path.write_text(json.dumps({**workload._asdict(), "tasks": [task._asdict() for task in workload.tasks]}))


def read(path: str | Path) -> Workload:
    """As it was."""
    fields = json.loads(Path(path).read_text())
    return Workload(**{**fields, "tasks": [Task(**task) for task in fields["tasks"]]})


class Letters:
    """The tokenizer: a token for each mark and each character."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self.tokens, self._ids = tokens, {token: index for index, token in reversed([*enumerate(tokens)])}
        self.pad, self.begin, self.end = (self._ids[f"<|{name}|>"] for name in ("pad", "bos", "end"))

    def encode(self, text: str) -> list[int]:
        """Ids of a text in which marks are marks."""
        parts = (part for part in MARKS.split(text) if part)
        return [self._ids[one] for part in parts for one in ([part] if part in self._ids else part)]

    def decode(self, ids: Sequence[int]) -> str:
        """Text, marks shown."""
        return "".join(self.tokens[int(one)] for one in ids)


def opening(prompt: str) -> str:
    """A conversation up to the first word of the policy."""
    return f"<|bos|><|user|>{prompt}<|assistant|>"


def between(answer: str) -> str:
    """What stands between the end token of a turn and the next one."""
    return f"<|user|>{answer}<|assistant|>"


def worth(text: str) -> float:
    """What a turn earns."""
    return sum(letter in VOWELS for letter in text) / max(len(text), FEWEST)


class Play:
    """One episode.

    Args:
        workload: it is of.
        task: what it is about.
        member: index in the group.
        events: gets to know of it.
        retry: how often this member has failed before.
    """

    def __init__(self, workload: Workload, task: Task, member: int, events: "Events", retry: int = 0) -> None:
        self._turns, self._events = workload.turns, events
        self._task, self.member, self._retry = task, member, retry
        self.said: list[str] = []
        self.earned = 0.0

    def begin(self) -> str:
        """Give the prompt."""
        self._tell("episode_begin")
        return self._task.prompt

    def hear(self, text: str) -> tuple[float, str | None]:
        """Answer a turn that ended.

        Returns:
            Seconds to wait before the answer is given, and the answer; no seconds and ``None`` where the episode is over.

        Raises:
            Failed: it was drawn to, and this is the first turn of the first try.
        """
        turn = len(self.said)
        if self._retry == turn == 0 and self._task.fails[self.member]:
            self._tell("failure")
            raise Failed(f"drawn to fail: {self._task.name}, member {self.member}")
        self.said.append(text)
        self.earned += worth(text) / self._turns
        if turn + 1 == self._turns:
            return 0.0, None
        return self._task.delays[self.member][turn], f"{sum(letter in VOWELS for letter in text)} of {len(text)}"

    def end(self) -> float:
        """The episode is over: its reward."""
        self._tell("episode_end", reward=self.earned, said=self.said)
        return self.earned

    def _tell(self, event: str, **more: Any) -> None:
        self._events.tell(event, task=self._task.name, member=self.member, **more)


class Events:
    """What happened and when, a line of JSON each, on a clock that all processes of this machine share."""

    def __init__(self, path: str | Path) -> None:
        self._file, self._lock = Path(path).open("w", buffering=1), threading.Lock()  # noqa: SIM115 - open as long as the process

    def tell(self, event: str, **more: Any) -> None:
        """Write it down now, from any thread."""
        with self._lock:
            self._file.write(json.dumps({"t": time.monotonic(), "event": event, **more}) + "\n")

    @contextmanager
    def span(self, event: str) -> Iterator[None]:
        """Tell when something begins and when it ends, also where it fails."""
        self.tell(f"{event}_begin")
        try:
            yield
        finally:
            self.tell(f"{event}_end")

    def close(self) -> None:
        """Nothing more is told. The end of a process does as well."""
        self._file.close()
