"""The comparison with peers: figures of what a process told, worked out here by hand, and a small training of ours to its end.

The peers themselves take part only in ``make bench-peers``: they are not installed where tests run.
"""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flax import nnx

SCRIPTS = Path(__file__).parents[2] / "bench" / "peers"


@pytest.fixture(autouse=True)
def _scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))


def told(*events: tuple[float, str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [{"t": t, "event": event, **more} for t, event, more in events]


def ended(at: float, task: str, member: int, reward: float, *said: str) -> tuple[float, str, Mapping[str, Any]]:
    return at, "episode_end", {"task": task, "member": member, "reward": reward, "said": list(said)}


TWO_UPDATES = told(
    (10.0, "compiled", {"seconds": 1.0}),
    ended(11.0, "a", 0, 0.5, "x"),
    ended(11.0, "a", 1, 0.5, "x"),
    (12.0, "train_begin", {}),
    (13.0, "train_end", {}),
    (13.0, "updated", {"tasks": ["a"]}),
    (14.0, "compiled", {"seconds": 1.0}),
    (15.0, "sampled", {"tokens": 30}),
    ended(16.0, "b", 0, 0.0, "x", "y"),
    ended(16.0, "b", 1, 1.0, "x", "z"),
    (17.0, "train_begin", {}),
    (18.0, "train_end", {}),
    (19.0, "train_begin", {}),
    (22.0, "train_end", {}),
    (23.0, "updated", {"tasks": ["b"]}),
)


def test_rates_are_of_the_time_after_the_warm_up_and_the_rest_of_all():
    from agentic_figures import figures

    found = figures(TWO_UPDATES, spawned=3.0, group_size=2, warm=1)
    assert found.updates == 2
    assert found.groups_per_minute == found.trained_per_minute == 60.0 / 10.0
    assert found.first_update_s == 13.0 - 3.0
    assert found.idle == pytest.approx(1.0 - 4.0 / 10.0)
    assert found.distinct == (1 + 2) / 2
    assert found.tokens_per_s == 30 / 10.0
    assert found.tokens_per_turn == 30 / 6
    assert found.signal_per_hour == 3600 * 2 / 10.0, "of a group whose members earn the same nothing is learned"
    assert (found.compiled, found.compiled_later) == (2, 1)
    assert found.rewards == [0.5, 0.5]
    assert (found.failed, found.again, found.broke) == (0, 0, None)


def test_a_training_that_ends_in_its_warm_up_has_no_rates():
    from agentic_figures import figures

    found = figures([*TWO_UPDATES[:6], *told((14.0, "broke", {"error": "ValueError: no"}))], 3.0, 2, warm=1)
    assert (found.updates, found.first_update_s, found.broke) == (1, 10.0, "ValueError: no")
    assert found.groups_per_minute is found.idle is found.tokens_per_s is found.signal_per_hour is None


def test_a_group_is_complete_where_every_member_ended_before_its_update():
    from agentic_figures import figures

    failed = (15.0, "failure", {"task": "b", "member": 1})
    without = [event for event in TWO_UPDATES if event["t"] != 16.0]
    hidden = [*without[:8], *told(failed, ended(16.0, "b", 0, 0.0, "x")), *without[8:]]
    found = figures(hidden, 3.0, 2, warm=1)
    assert (found.groups_per_minute, found.trained_per_minute) == (0.0, 6.0)
    assert (found.failed, found.again, found.rewards) == (1, 0, [0.5, None])
    tried_again = [*without[:8], *told(failed, ended(16.0, "b", 0, 0.0, "x"), ended(16.5, "b", 1, 1.0, "z")), *without[8:]]
    found = figures(tried_again, 3.0, 2, warm=1)
    assert (found.groups_per_minute, found.failed, found.again) == (6.0, 1, 1)


def test_an_update_of_a_task_that_nobody_played_is_refused():
    from agentic_figures import figures

    with pytest.raises(ValueError, match=r"expected updates of tasks that episodes were about; got \['c'\]"):
        figures([*TWO_UPDATES, *told((24.0, "updated", {"tasks": ["c"]}))], 3.0, 2, warm=1)


def test_every_system_has_the_same_work_and_its_failures_happen_once():
    from agentic_settings import SYSTEMS, PeersConfig, choices, heldout_of, workload_of
    from agentic_world import Events, Failed, Play

    config = PeersConfig()
    workload = workload_of(config, "failing", Path("model"), Path("pretrained"))
    assert len(workload.tasks) == config.updates * config.groups_per_update
    share = sum(fails for task in workload.tasks for fails in task.fails) / (len(workload.tasks) * config.group_size)
    assert share == pytest.approx(config.failing, abs=0.03)
    slow = workload_of(config, "turns", Path("model"), Path("pretrained"))
    assert [task.delays for task in slow.tasks] == [task.delays for task in workload.tasks]
    assert not any(fails for task in slow.tasks for fails in task.fails)
    heldout = heldout_of(config, 3, Path("model"))
    assert not {task.prompt for task in heldout.tasks} & {task.prompt for task in workload.tasks}
    assert {choice.system for setting in config.settings for choice in choices(config, setting)} == set(SYSTEMS)

    task = next(task for task in workload.tasks if any(task.fails))
    member = task.fails.index(True)
    events = Events(os.devnull)
    with pytest.raises(Failed, match="drawn to fail"):
        Play(workload, task, member, events).hear("aaaa")
    assert Play(workload, task, member, events, retry=1).hear("aaaa") == (task.delays[member][0], "4 of 4")
    events.close()


def test_letters_are_read_as_they_were_written(tmp_path: Path):
    from agentic_settings import PeersConfig, workload_of
    from agentic_world import Letters, between, opening, read, worth, write

    workload = workload_of(PeersConfig(updates=2), "turns", Path("model"), Path("pretrained"))
    write(workload, tmp_path / "work.json")
    again = read(tmp_path / "work.json")
    assert again == workload._replace(
        tokens=list(workload.tokens), tasks=[task._replace(fails=list(task.fails)) for task in workload.tasks]
    )
    letters = Letters(workload.tokens)
    text = opening("abc") + "hello<|end|>" + between("2 of 5")
    assert letters.decode(letters.encode(text)) == text
    assert letters.encode("<|end|>") == [letters.end]
    assert (worth("aeioaeio"), worth("aaaa"), worth("bbbbbbbb"), worth("a" * 32)) == (1.0, 0.5, 0.0, 1.0)


def trial(system: str, rate: float | None, *codes: int | None) -> Any:
    from agentic_figures import figures
    from agentic_findings import Trial

    found = replace(figures(TWO_UPDATES, 3.0, 2, 1), groups_per_minute=rate)
    return Trial(system, "", found, codes or (0,), 1000)


def test_peers_are_compared_by_their_best_choice_that_came_to_its_end():
    from agentic_findings import findings
    from agentic_settings import PeersConfig

    trials = [
        trial("headrace", 100.0),
        trial("tunix", 90.0, -11, -11, -11),
        trial("tunix", 25.0),
        trial("tunix", 10.0),
        trial("TRL", 20.0),
    ]
    found = findings(PeersConfig(settings=("single",)), {"single": trials}, None)
    ratios = {claim.what: (claim.got, claim.holds) for claim in found.claims if "groups per minute" in claim.what}
    assert ratios == {
        "single turn: complete groups per minute over those of tunix, its best choice": (4.0, False),
        "single turn: complete groups per minute over those of TRL, its best choice": (5.0, True),
    }
    assert [row["codes"] for row in found.tables[0].rows] == ["0", "-11, -11, -11", "0", "0", "0"]
    assert "headrace 100, tunix 25, TRL 20" in found.answer


def test_a_peer_that_never_came_to_its_end_is_no_success():
    from agentic_findings import findings
    from agentic_settings import PeersConfig

    found = findings(PeersConfig(), {"turns": [trial("headrace", 100.0), trial("tunix", None, None)]}, 0.1)
    (claim,) = [claim for claim in found.claims if "tunix, its best" in claim.what]
    assert (claim.got, claim.holds) == (None, False)
    assert found.tables[0].rows[1]["codes"] == "hung"


def test_a_process_is_told_by_its_events_its_end_and_its_memory(tmp_path: Path):
    from agentic_process import run

    script = (
        "import sys; held = bytearray(50_000_000); held[::4096] = b'x' * len(held[::4096]);"
        'open(sys.argv[1], \'w\').write(\'{"t": 1.0, "event": "started"}\\n{"t": 2.0, "ev\');'
        "import time; time.sleep(float(sys.argv[2])); print('last words'); sys.exit(3)"
    )
    command = [sys.executable, "-c", script, tmp_path / "events"]
    over = run([*command, "0.5"], tmp_path / "events", tmp_path / "log", 60.0, {})
    assert (over.code, over.tail, over.events) == (3, "last words", [{"t": 1.0, "event": "started"}])
    assert over.peak_bytes > 50_000_000
    hung = run([*command, "60"], tmp_path / "events", tmp_path / "log", 1.0, {})
    assert (hung.code, hung.tail) == (None, "")


@pytest.mark.slow
def test_a_small_training_of_ours_tells_all_that_figures_are_made_of(tmp_path: Path):
    from agentic_figures import figures
    from agentic_process import run
    from agentic_settings import PeersConfig, workload_of
    from agentic_world import write

    from graphs.bench.delays import DelaysConfig
    from stages.models.config import ModelConfig, RotaryConfig
    from stages.models.huggingface import write_huggingface
    from stages.models.transformer import Transformer

    config = PeersConfig(
        group_size=2, groups_per_update=2, updates=2, warm=1, turns=2, failing=0.5, response_tokens=87,
        delays=DelaysConfig(seconds=(0.001,), shares=(1.0,)),
    )  # fmt: skip
    workload = workload_of(config, "failing", tmp_path / "model", tmp_path)
    shape = ModelConfig(
        vocab_size=len(workload.tokens), width=16, num_layers=1, num_heads=2, num_kv_heads=1, head_size=8, mlp_width=32,
        context_length=96, rotary=RotaryConfig(base=1e6),
    )  # fmt: skip
    write_huggingface(Transformer(shape, nnx.Rngs(0)), tmp_path / "model")
    write(workload, tmp_path / "work.json")
    settings = json.dumps({"max_lag": 1, "barrier": "group", "concurrency": 8, "slots": 8})
    command = [
        sys.executable,
        SCRIPTS / "agentic_headrace.py",
        tmp_path / "work.json",
        tmp_path / "events",
        tmp_path / "weights",
    ]
    over = run([*command, settings], tmp_path / "events", tmp_path / "log", 300.0, {"JAX_PLATFORMS": "cpu"})
    assert over.code == 0, over.tail
    found = figures(over.events, over.spawned, config.group_size, config.warm)
    assert found.updates == 2
    assert found.groups_per_minute == found.trained_per_minute
    assert found.groups_per_minute is not None
    assert found.groups_per_minute > 0
    assert found.failed == found.again
    assert found.distinct is not None
    assert 1.0 <= found.distinct <= 2.0
    assert found.tokens_per_turn is not None
    assert found.compiled_later == 0
    assert found.idle is not None
    assert 0.0 < found.idle < 1.0
    assert over.peak_bytes > 100_000_000
    assert (tmp_path / "weights" / "model.safetensors").exists()
