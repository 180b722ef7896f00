"""The lines of one command out of the usage of all."""

import re


def lines_of(usage: str, command: str) -> str:
    """What the usage says of a command: its line, and those that go on with it.

    Args:
        usage: of all commands, each at the beginning of a line: ``  headrace COMMAND ...``.
        command: its name.
    """
    found = re.search(rf"^  headrace {re.escape(command)} .*(?:\n {{10,}}.*)*", usage, flags=re.MULTILINE)
    return found.group() if found else f"  headrace {command}"
