"""Stages and sinks that tests declare where what they do does not matter."""

from flow import Context, Gathered


def number(value: int, context: Context) -> int:
    return value


def show(value: int, context: Context) -> None:
    """Shows nothing."""


def show_group(value: Gathered[int], context: Context) -> None:
    """Shows nothing."""


class Train:
    def add(self, value: Gathered[int], context: Context) -> None:
        """Takes all."""

    def finish(self, context: Context) -> str:
        return ""


class TrainOnSingles:
    def add(self, value: int, context: Context) -> None:
        """Takes all."""

    def finish(self, context: Context) -> str:
        return ""
