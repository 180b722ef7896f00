"""What processes wrote down of a training: which episodes they began and ended, and what each step trained.

Lines of ``flow.testing.appended``: ``begun NAME ATTEMPT`` and ``ended NAME ATTEMPT`` of each execution of an environment, and
``trained STEP ...`` of each step. Those of all processes that went on with a training stand one after another.
"""

from collections import Counter

from flow.testing import Process


def trained(process: Process) -> list[str]:
    """What each step trained: of a step that came several times, since kills undid it, the latest."""
    steps = dict(line.split(" ", 1) for line in process.told("trained"))
    return [f"{step} {steps[step]}" for step in sorted(steps, key=int)]


def executed_twice(process: Process) -> dict[str, int]:
    """Executions, by name and attempt, that there were more than one of."""
    return {name: count for name, count in Counter(process.told("begun")).items() if count > 1}


def made_again(process: Process, after: str, of: str = "") -> list[str]:
    """Executions begun although a word had been told of an earlier attempt.

    Args:
        process: the last one.
        after: the word, ``ended`` or ``begun``.
        of: what the names of those begin with that count.
    """
    told: set[str] = set()
    again: list[str] = []
    lines = (process.folder / "executions").read_text().splitlines()
    for word, _, name in (line.partition(" ") for line in lines):
        item = name.rsplit(" ", 1)[0]
        if word == "begun" and item in told and name.startswith(of):
            again.append(name)
        if word == after:
            told.add(item)
    return again
