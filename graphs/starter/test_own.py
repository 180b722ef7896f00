"""Tests: run pytest in this folder."""

from graphs.own_program import OwnConfig
from stages.envs.testing import check_env

from environment import Quiz
from graph import TASKS, train


def test_the_environment_keeps_its_contract():
    check_env(lambda task: Quiz(), TASKS, pooled=True)


def test_the_graph_can_run():
    train(OwnConfig()).phases[0].make(None).build()
