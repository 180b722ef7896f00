"""Programs are proved against devices that are declared, without those devices and without weights."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from graphs.cli import main
from graphs.topology import declare, read_topology

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "examples" / "recipes" / "qwen_on_tpu.sh"
QWEN = {
    "architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu", "hidden_size": 1536, "intermediate_size": 8960,
    "max_position_embeddings": 32768, "max_window_layers": 21, "model_type": "qwen2", "num_attention_heads": 12,
    "num_hidden_layers": 28, "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16", "use_sliding_window": False, "vocab_size": 151936,
}  # fmt: skip
"""Sizes of the published config.json of Qwen2.5-1.5B-Instruct."""
SHAPES = """
import sys
from graphs.commands.command_line import read_program
from graphs.memory import check_memory
from graphs.placing import placed
from graphs.runs.execute import prove
from graphs.topology import declared

arguments, topology = declared(sys.argv[2:])
program, _ = read_program("check", arguments)
print(len(prove(program, None)), "graphs")
print(placed(program.parts.model, program.parts.engine.mesh, program.parts.reference_mesh))
print(check_memory(program, topology.budget))
"""
"""What ``headrace check`` does, but for compiling the gradient of a model of this size."""


@pytest.fixture(autouse=True)
def devices() -> None:
    """This process has looked at its two, so that no test gives it others for good."""
    assert jax.device_count() == 2


@pytest.fixture
def unweighted(pretrained_folder: Path, tmp_path: Path) -> Path:
    """A folder with configuration and tokenizer alone."""
    folder = tmp_path / "unweighted"
    shutil.copytree(pretrained_folder, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    return folder


def test_a_slice_is_known_by_its_name() -> None:
    """Chips, cores and memory as the documents of the slices and the errors of their compiler have them."""
    found = {name: read_topology(name) for name in ("v5e-8", "v6e-8", "v5p-8", "v4-16", "V5E-16", "3x0.5")}
    assert {name: (one.num_devices, one.machines) for name, one in found.items()} == {
        "v5e-8": (8, 1), "v6e-8": (8, 1), "v5p-8": (4, 1), "v4-16": (8, 2), "V5E-16": (16, 2), "3x0.5": (3, None)
    }  # fmt: skip
    assert found["v5e-8"].budget.num_bytes == 15.75 * 2**30
    assert found["3x0.5"].budget.num_bytes == 2**29
    assert [bool(one.warnings) for one in found.values()] == [False, False, False, True, True, False]


@pytest.mark.parametrize("text", ["v5e", "v7-8", "v5p-7", "0x16", "8x0", "v5e-1024"])
def test_what_declares_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="in --topology"):
        read_topology(text)


def test_a_process_that_has_its_devices_keeps_them() -> None:
    declare(read_topology("2x16"))
    with pytest.raises(ValueError, match="got one with 2, in --topology 8x16; check it in a process of its own"):
        declare(read_topology("8x16"))


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    return out + err


def test_a_program_is_checked_without_weights_and_not_run(
    unweighted: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(unweighted.parent)
    check = ("check", "evaluate", "--topology", "2x16", "--model", str(unweighted), "--policy.mesh.fsdp", "2")
    main(check)
    told = capsys.readouterr().out
    assert "devices: trainer 2 (fsdp=2)\nmemory of each device, 2x16 (declared):" in told
    assert "warning: the weights are not all here, so that it can be checked and not run" in told
    assert told.endswith("evaluate: 1 graph can run on 2x16, 2 devices\n")
    assert "expected model.safetensors" in refused(capsys, "run", "evaluate", "--model", str(unweighted))
    assert not Path("runs").exists()


def test_what_does_not_fit_the_declared_devices_is_refused(unweighted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Too little memory, a mesh with too many devices, rows that do not divide over those that share them."""
    evaluate = ("check", "evaluate", "--model", str(unweighted))
    assert "2x0.0001 (declared); got one that takes" in refused(capsys, *evaluate, "--topology=2x0.0001")
    assert "expected 4 devices" in refused(capsys, *evaluate, "--topology", "2x16", "--policy.mesh.fsdp", "4")
    rows = ("--policy.mesh.fsdp", "2", "--rl.trainer.rows-per-microbatch", "3")
    told = refused(capsys, "check", "grpo", "--model", str(unweighted), "--topology", "2x16", *rows)
    assert "rows_per_microbatch to be a multiple of 2" in told
    assert "leave one" in refused(capsys, *evaluate, "--topology", "2x16", "--verify-sync")
    assert "v5e-8, for example" in refused(capsys, *evaluate, "--topology")


def test_devices_that_only_repeat_the_work_of_others_are_warned_of(
    unweighted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = ("policy.engine-mesh:mesh-config", "--policy.engine-mesh.data", "2")
    assert "got 2, in engine_mesh" in refused(capsys, "check", "evaluate", "--model", str(unweighted), *engine)
    from graphs.placing import placing_warnings
    from stages.models.mesh import MeshConfig, make_mesh
    from stages.models.pretrained import describe_model

    (warning,) = placing_warnings(describe_model(unweighted, weights=False), make_mesh(MeshConfig(data=2)))
    assert "hold the same slots and do the same work" in warning


def recipe(folder: Path, tokenizer: Path, headrace: str, *arguments: str) -> str:
    """What the recipe says of a folder with the sizes of the published model."""
    shutil.copytree(tokenizer, folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json"), dirs_exist_ok=True)
    (folder / "config.json").write_text(json.dumps(QWEN))
    environment = {name: value for name, value in os.environ.items() if name != "JAX_NUM_CPU_DEVICES"}
    done = subprocess.run(
        ["sh", RECIPE, "check", folder, *arguments], capture_output=True, text=True, timeout=900, cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT), "HEADRACE": headrace},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_recipe_of_a_tpu_slice_fits_it_by_its_shapes(tmp_path: Path, pretrained_folder: Path) -> None:
    """1,543,714,304 parameters; a quarter of them in bfloat16 and four times in float32, norms and biases whole."""
    (tmp_path / "shapes.py").write_text(SHAPES)
    told = recipe(tmp_path / "model", pretrained_folder, f"{sys.executable} {tmp_path / 'shapes.py'}", "--topology", "v6e-8")
    graphs, devices, *table = told.splitlines()
    assert (graphs, devices) == ("3 graphs", "trainer 4 (fsdp=4), engine 2 (tensor=2), reference 2 (fsdp=2)")
    sizes = {line.strip().rpartition("  ")[0].strip(): float(line.split()[-2]) for line in table}
    quarter = 1_543_714_304 / 4 / 2**30
    assert sizes["weights"] == pytest.approx(2 * quarter, abs=0.01)
    assert sizes["optimizer state"] == pytest.approx(8 * quarter, abs=0.02)
    assert "of 31.25 GiB" in table[-1]


@pytest.mark.soak
def test_the_recipe_of_a_tpu_slice_passes_the_check_with_its_gradient_compiled(tmp_path: Path, pretrained_folder: Path) -> None:
    """The table that stands in docs/tpu.md, to a tenth: what the compiler works in differs from release to release."""
    told = recipe(tmp_path / "model", pretrained_folder, f"{sys.executable} -m graphs.cli", "--topology", "v6e-8")
    assert told.rstrip().splitlines()[-1] == "grpo: 3 graphs can run on v6e-8, 8 devices"
    page = (ROOT / "docs" / "tpu.md").read_text()
    written, now = (float(next(line for line in text.splitlines() if "at once" in line).split()[-2]) for text in (page, told))
    assert now == pytest.approx(written, rel=0.1)
