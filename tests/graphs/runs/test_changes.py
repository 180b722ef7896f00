"""What a run may change when it goes on, and what is told of each difference."""

import pytest

from flow.saving import Difference
from graphs.catalogue import CATALOGUE
from graphs.runs.changes import MAY_CHANGE, of_graph, of_settings, of_versions, stopping
from stages.rollout.http.config import HttpConfig

BEFORE = {
    "seed": 0,
    "evaluate": {"num_tasks": 8},
    "rl": {"steps": 40, "group_size": 8, "reference": None, "rates": {}, "limits": {"step_s": 3.0}, "gate": {"action": "stop"}},
}


def changed(**rl: object) -> dict[str, object]:
    return {**BEFORE, "rl": {**BEFORE["rl"], **rl}}  # type: ignore[dict-item]


def test_what_decides_how_long_or_how_fast_is_accepted_and_everything_else_refused():
    now = changed(steps=60, group_size=4, limits={"step_s": 9.0}, gate={"action": "keep_best"})
    assert [str(change) for change in of_settings(BEFORE, now)] == [
        "rl.steps: 40 before, 60 now; accepted: how long",
        "rl.group_size: 8 before, 4 now; refused: the run would have been another with it",
        "rl.limits.step_s: 3.0 before, 9.0 now; accepted: how long something may take",
        "rl.gate.action: stop before, keep_best now; refused: the run would have been another with it",
    ]


def test_what_is_the_same_is_no_difference():
    assert of_settings(BEFORE, changed()) == []


def test_a_refused_setting_is_accepted_by_name_with_dashes_or_underscores():
    for name in ("rl.group-size", "rl.group_size", "--rl.group-size"):
        (change,) = of_settings(BEFORE, changed(group_size=4), [name])
        assert (change.verdict, change.why) == ("accepted", "by name")


def test_to_accept_what_is_no_setting_is_a_mistake_that_is_told():
    with pytest.raises(ValueError, match=r"got rl.grup_size, in --options.accept; those that differ are rl.group_size$"):
        of_settings(BEFORE, changed(group_size=4), ["rl.grup-size"])


def test_a_section_that_came_or_went_is_one_difference_and_a_name_in_a_table_another():
    (change,) = of_settings(BEFORE, changed(reference={"memory": "host"}))
    assert str(change).startswith("rl.reference: none before, {'memory': 'host'} now; refused")
    (change,) = of_settings(BEFORE, changed(rates={"search": 3.0}))
    assert (change.path, change.before, change.verdict) == ("rl.rates.search", None, "accepted")


def test_nothing_of_a_phase_that_is_over_can_be_changed_any_more():
    (change,) = of_settings(BEFORE, changed(steps=60), ["rl.steps"], over=("rl",))
    assert (change.verdict, change.why) == ("impossible", "that phase is over")


def test_what_does_not_fit_the_graph_as_it_was_saved_is_impossible_whoever_accepts_it():
    found = [Difference("rl.members.members", 8, 4, "refuse"), Difference("rl.episodes.workers", 8, 16, "accept")]
    assert [change.verdict for change in of_graph(found, [])] == ["impossible", "accepted"]
    settings = of_settings(BEFORE, changed(group_size=4), ["rl.group_size"])
    assert [change.path for change in of_graph(found, settings)] == ["rl.members.members"]


def test_another_model_tokenizer_or_template_is_impossible_and_another_package_only_told():
    before = {"python": "3.11.1", "packages": {"jax": "0.7"}, "model": "ab", "tokenizer": "cd", "template": "ef"}
    now = {"python": "3.11.1", "packages": {"jax": "0.8"}, "model": "zz", "tokenizer": "cd", "template": "ef"}
    jax, model = of_versions(before, now)
    assert str(jax) == "packages.jax: 0.7 before, 0.8 now; accepted: the last bits of numbers may differ"
    assert str(model) == "model: ab before, zz now; impossible: what was saved was made with it"
    assert stopping([jax, model]) == [model]


def test_every_setting_that_may_change_is_one_of_a_ready_program():
    """A name that is misspelt in the list would refuse without a word what it was to accept."""
    given = {"rates": {"x": 1.0}, "pools": {"x": 1}, "memory": "host", "rows_per_batch": 4}
    paths: set[str] = set()
    for entry in CATALOGUE.values():
        config = (entry.default or entry.config()).model_dump(mode="json")
        paths |= set(_paths(config, given))
    found = {pattern: {c.why for path in paths for c in _accepted(path)} for pattern in MAY_CHANGE}
    unused = [pattern for pattern, whys in found.items() if MAY_CHANGE[pattern] not in whys]
    assert unused == []


def _accepted(path: str):
    return [change for change in of_settings({path: 1}, {path: 2}) if change.verdict == "accepted"]


def _paths(config: dict, given: dict, above: str = ""):
    for name, value in config.items():
        if isinstance(value, dict) and value:
            yield from _paths(value, given, f"{above}{name}.")
        elif isinstance(value, dict) and name in given:
            yield f"{above}{name}.x"
        elif name == "servers":
            yield from (f"{above}{name}.{field}" for field in HttpConfig.model_fields)
        else:
            yield f"{above}{name}"
