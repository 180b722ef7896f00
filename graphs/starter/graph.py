"""Training. Without a model a tiny policy starts from nothing: that only shows that everything turns."""

from pathlib import Path

from graphs.own_program import OwnConfig, own_program
from graphs.program import Program
from stages.tasks.jsonl import JsonlTasks

from environment import Quiz
from tools import LOOK_UP

TASKS = JsonlTasks(Path(__file__).with_name("tasks.jsonl"))


def train(config: OwnConfig) -> Program:
    return own_program("quiz", config, TASKS, lambda task: Quiz(), tools=[LOOK_UP])
