"""Models, trainer and engine spread over eight virtual devices, against one device. All figures come from one process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

MESHES = ["dense (1, 1, 8)", "dense (2, 2, 2)", "dense (1, 8, 1)", "dense (8, 1, 1)", "mixture (1, 1, 8)", "mixture (2, 2, 2)"]

pytestmark = pytest.mark.slow  # One process that compiles some forty programs.


@pytest.fixture(scope="module")
def found(on_eight_devices: Callable[[Path], Any]) -> dict[str, Any]:
    return on_eight_devices(Path(__file__).with_name("eight_devices.py"))


@pytest.mark.parametrize("name", MESHES)
def test_logits_loss_and_gradient_are_those_of_one_device(found, name):
    figures = found["models"][name]
    assert figures["loss"] < 1e-6
    assert figures["logits"] < 1e-5
    assert figures["gradient"] < 1e-5 * figures["gradient_size"]


@pytest.mark.parametrize("name", ["dense (1, 1, 8)", "mixture (2, 2, 2)"])
def test_logits_over_a_cache_are_those_of_one_device(found, name):
    assert found["models"][name]["cached"] < 1e-5


@pytest.mark.parametrize(
    ("name", "rows", "share"),
    [("dense (1, 1, 8)", 8, 1 / 8), ("dense (2, 2, 2)", 2, 1 / 4), ("dense (1, 8, 1)", 1, 1 / 8), ("dense (8, 1, 1)", 1, 1)],
)
def test_a_device_holds_its_share_of_the_parameters_and_computes_with_its_share_of_the_rows(found, name, rows, share):
    """Rows over data and fsdp, parameters over fsdp and tensor; norms are whole everywhere, hence the slack."""
    figures = found["models"][name]
    assert figures["rows"] == rows
    assert share <= figures["share"] < share + 0.02


def test_heads_that_do_not_divide_stay_whole_and_are_told(found):
    assert found["facts"]["places"] == {
        "key.kernel_IO": "P('fsdp', None)",
        "query.kernel_IO": "P('fsdp', 'tensor')",
        "query.lora_up_RO": "P(None, 'tensor')",
        "mlp.gate_EWF": "P(None, 'fsdp', 'tensor')",
    }
    reason = "2 kv_heads do not divide by tensor=8"
    assert found["facts"]["undivided"]["blocks.0.key.kernel_IO"] == reason
    assert {path.split(".")[2] for path in found["facts"]["undivided"]} == {"key", "value"}


def test_weights_yet_to_be_loaded_are_told_where_to_go(found):
    assert found["facts"]["described"] == "P('fsdp', 'tensor')"


def test_meshes_and_rows_that_do_not_fit_are_refused_with_the_numbers(found):
    few, rows = found["facts"]["refusals"]
    assert "expected 12 devices" in few
    assert "got 8" in few
    assert "multiple of 4" in rows
    assert "got 6" in rows


def test_a_step_of_a_trainer_on_a_mesh_equals_one_on_one_device(found):
    """On data=2, fsdp=2: loss, gradient norm, and the parameters after one step of Adam; moments lie as their parameters do."""
    figures = found["training"]
    assert figures["loss"] < 1e-6
    assert figures["grad_norm"] < 1e-6
    assert figures["parameters"] < 1e-5
    assert figures["moment_share"] == 0.5


def test_an_engine_on_the_trainers_mesh_shares_its_arrays(found):
    figures = found["training"]["same_mesh"]
    assert figures["shared"]
    assert figures["devices"] == [0, 1, 2, 3]


def test_an_engine_on_other_devices_gets_a_copy_there(found):
    """From (2, 2, 1) into (1, 1, 4), device to device."""
    figures = found["training"]["other_mesh"]
    assert not figures["shared"]
    assert figures["devices"] == [4, 5, 6, 7]


@pytest.mark.parametrize("mesh", ["same_mesh", "other_mesh"])
def test_an_engine_on_a_mesh_samples_what_one_on_one_device_does_and_holds_the_trainers_bits(found, mesh):
    """S80: greedy tokens after a load of trained weights; log-probabilities within 1e-5; checksums across both meshes."""
    figures = found["training"][mesh]
    assert figures["tokens"]
    assert figures["logprobs"] < 1e-5
    assert figures["differing"] == []
