"""``headrace plan`` measures a program and tells what other settings would come to."""

import json

import pytest

from graphs.cli import main

TINY = [
    "--warm-start.steps", "2", "--warm-start.examples-per-step", "4", "--model.width", "16", "--model.num-layers", "1",
    "--model.num-heads", "2", "--model.num-kv-heads", "1", "--model.head-size", "8", "--model.mlp-width", "32",
    "--engine.slots", "8", "--engine.prefill-rows", "4", "--num-train-tasks", "32", "--delay.scale-s", "0.001",
    "--rl.max-concurrency", "4", "--rl.groups-per-step", "2", "--rl.group-size", "2",
]  # fmt: skip


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["plan", *arguments])
    assert ended.value.code == 2
    return " ".join(capsys.readouterr().err.split())


def test_without_measuring_there_is_no_plan(capsys):
    assert "expected --measure" in refused(capsys, "calculator")


def test_what_does_not_go_together_is_refused_before_work_starts(capsys):
    both = ["--target-groups-per-minute", "3", "--target-steps-per-minute", "3"]
    assert "expected one of --target-groups-per-minute" in refused(capsys, "calculator", "--measure", *both)
    assert "expected at least 2" in refused(capsys, "calculator", "--measure", "--probe-steps", "1")


def test_a_program_that_learns_from_no_reward_has_no_plan(capsys, tmp_path):
    own = tmp_path / "own.py"
    own.write_text(
        "from flow import Graph\n\n\ndef words() -> Graph:\n    graph = Graph('words')\n"
        "    graph.source('in', ['a']) >> graph.sink('out', print_it)\n    return graph\n\n\n"
        "def print_it(word: str, context: object) -> None:\n    print(word)\n"
    )
    assert "expected a program of reinforcement learning" in refused(capsys, f"{own}:words", "--measure")


@pytest.mark.slow
def test_a_program_is_measured_and_the_cheapest_choice_that_is_enough_is_told(capsys):
    main(["plan", "calculator", "--measure", "--probe-steps", "2", *TINY, "--target-steps-per-minute", "0.001", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["program"] == "calculator"
    assert told["target_groups_per_minute"] == 0.002
    assert told["measured"]["steps"] == 2
    assert set(told["measured"]["decode_s"]) == {"8"}
    assert told["chosen"] == told["choices"][0]
    assert told["chosen"]["arguments"][:2] == ["--rl.max-concurrency", "1"]
    assert {choice["max_lag"] for choice in told["choices"]} == {0, 1, 2}
    assert all(choice["groups_per_minute"] == pytest.approx(2 * choice["steps_per_minute"]) for choice in told["choices"])
