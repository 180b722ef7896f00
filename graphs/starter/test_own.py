"""Tests: run pytest in this folder."""

from stages.envs.testing import check_env

from environment import Quiz
from graph import TASKS, Settings, train


def test_the_environment_keeps_its_contract():
    check_env(lambda task: Quiz(), TASKS, pooled=True)


def test_the_graph_can_run():
    for phase in train(Settings()).phases:
        phase.make(None).build(quiet=True)
