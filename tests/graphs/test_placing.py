"""A pretrained model with adapters and devices of its own, from its settings to what a run saves and exports."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx

from graphs.cli import main
from graphs.evaluate import EvaluateConfig
from graphs.memory import memory_needs
from graphs.placing import PlacingConfig, place, placing_warnings
from graphs.pretrained import EvaluateProgramConfig, SftProgramConfig, evaluate_program, sft_program
from graphs.pretrained_parts import PolicyConfig
from graphs.program import Program
from graphs.runs.saved import saved_program
from graphs.sft import SftConfig
from stages.agents.sampling import SamplingConfig
from stages.checkpoint.store import PARAMETERS, load_arrays, parameters_of, with_parameters
from stages.models.config import ModelConfig
from stages.models.huggingface import load_huggingface
from stages.models.lora import LoraConfig, merged
from stages.models.mesh import MeshConfig, make_mesh
from stages.models.transformer import Transformer
from stages.rollout.config import EngineConfig
from stages.train.config import TrainerConfig

ENGINE = EngineConfig(slots=2, prefill_rows=2, prefill_chunk=8, context_length=64)
EVALUATE = EvaluateConfig(num_tasks=2, sampling=SamplingConfig(max_tokens_per_turn=4))
TWO = MeshConfig(fsdp=2)


@pytest.fixture(scope="module")
def adapted(
    pretrained_folder: Path,
    demonstrations: Path,
    run: Callable[[Program, Path], Mapping[str, Any]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Folder of a run that trained adapters on two devices."""
    folder = tmp_path_factory.mktemp("adapted")
    policy = PolicyConfig(model=str(pretrained_folder), engine=ENGINE, lora=LoraConfig(rank=2), mesh=TWO)
    trainer = TrainerConfig(row_length=64, rows_per_microbatch=2, learning_rate=1e-2)
    sft = SftConfig(steps=2, examples_per_step=1, trainer=trainer)
    config = SftProgramConfig(policy=policy, evaluate=EVALUATE, demonstrations=demonstrations, sft=sft)
    run(sft_program(config), folder / "run")
    return folder / "run"


def arrays(model: Any, adapters: bool = False) -> dict[str, np.ndarray]:
    leaves = jax.tree_util.tree_leaves_with_path(nnx.state(model, nnx.Param))
    named = {jax.tree_util.keystr(at): np.asarray(leaf) for at, leaf in leaves}
    return {name: leaf for name, leaf in named.items() if ("lora_" in name) == adapters}


@pytest.mark.slow
def test_a_run_with_adapters_saves_them_alone_and_is_loaded_with_the_weights_it_began_with(
    adapted: Path, pretrained_folder: Path
) -> None:
    program = saved_program(adapted)
    assert program.parts is not None
    fresh = arrays(program.parts.model, adapters=True)
    program.parts.load()
    model = program.parts.model
    before, after = arrays(load_huggingface(pretrained_folder)), arrays(model)
    assert before.keys() == after.keys()
    assert all((before[name] == after[name]).all() for name in before)
    learned = arrays(model, adapters=True)
    assert all((learned[name] != fresh[name]).any() for name in learned if "lora_up" in name)
    assert all(leaf.sharding.num_devices == 2 for leaf in jax.tree.leaves(nnx.state(model, nnx.Param)))
    where = parameters_of(with_parameters(adapted / "checkpoints")[-1])
    assert where is not None
    saved = load_arrays(where / PARAMETERS, nnx.state(model, nnx.LoRAParam))
    assert len(jax.tree.leaves(saved)) == len(learned)


@pytest.mark.slow
def test_an_export_has_the_adapters_folded_in(adapted: Path) -> None:
    main(["export", str(adapted)])
    program = saved_program(adapted)
    assert program.parts is not None
    program.parts.load()
    written, folded = arrays(load_huggingface(adapted / "huggingface")), arrays(merged(program.parts.model))
    for name in folded:
        np.testing.assert_array_equal(written[name], folded[name])


@pytest.mark.slow
def test_an_engine_with_devices_and_type_of_its_own_evaluates(
    pretrained_folder: Path, run: Callable[[Program, Path], Mapping[str, Any]], tmp_path: Path
) -> None:
    policy = PolicyConfig(
        model=str(pretrained_folder), engine=ENGINE.model_copy(update={"dtype": "bfloat16"}), engine_mesh=MeshConfig()
    )
    program = evaluate_program(EvaluateProgramConfig(policy=policy, evaluate=EVALUATE))
    assert run(program, tmp_path / "run")["status"] == "completed"
    assert program.parts is not None
    held = jax.tree.leaves(program.parts.engine.parameters)
    assert {device.id for leaf in held for device in leaf.devices()} == {1}
    assert {str(leaf.dtype) for leaf in held} == {"bfloat16"}


def test_memory_counts_the_fuller_of_two_meshes_and_the_engines_copy(pretrained_folder: Path) -> None:
    """Worked out from the shapes: float32 weights alone against a float32 or a bfloat16 copy with its cache."""

    def needs(**changes: Any) -> dict[str, int]:
        engine = ENGINE.model_copy(update={"dtype": changes.pop("dtype", None)})
        policy = PolicyConfig(model=str(pretrained_folder), engine=engine, **changes)
        program = evaluate_program(EvaluateProgramConfig(policy=policy, evaluate=EVALUATE))
        return {need.what.split(",")[0]: need.num_bytes for need in memory_needs(program)}

    shared = needs()
    assert list(shared) == ["weights", "keys and values"]
    assert needs(engine_mesh=MeshConfig()) == {
        "the engine's weights": shared["weights"], "keys and values": shared["keys and values"]
    }  # fmt: skip
    assert needs(dtype="bfloat16") == {
        "weights": shared["weights"],
        "the engine's weights": shared["weights"] // 2,
        "keys and values": shared["keys and values"] // 2,
    }
    assert shared["weights"] / 2 <= needs(mesh=TWO)["weights"] < 0.6 * shared["weights"]


def test_more_devices_than_there_are_are_refused_with_the_numbers() -> None:
    config = ModelConfig(
        vocab_size=8, width=4, num_layers=1, num_heads=2, num_kv_heads=1, head_size=2, mlp_width=4, context_length=8
    )
    model = nnx.eval_shape(lambda: Transformer(config, nnx.Rngs(0)))
    with pytest.raises(ValueError, match="expected 3 devices, 2 of the trainer and 1 of the engine; got 2, in engine_mesh"):
        place(model, PlacingConfig(mesh=TWO, engine_mesh=MeshConfig()))
    with pytest.raises(ValueError, match=r"expected 4 devices.* got 2"):
        place(model, PlacingConfig(mesh=MeshConfig(tensor=4)))


@pytest.mark.slow
def test_check_proves_that_the_engine_gets_its_weights(pretrained_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", "evaluate", "--verify-sync", "--policy.model", str(pretrained_folder), "--policy.engine.slots", "8"])
    printed = capsys.readouterr().out
    assert "evaluate: 1 graph can run" in printed
    assert "evaluate: the engine holds what it was given to the bit" in printed


def test_parameters_that_do_not_divide_over_devices_are_told() -> None:
    """Three key heads over two devices: keys and values of both layers stay whole; what divides is not spoken of."""
    config = ModelConfig(
        vocab_size=8, width=12, num_layers=2, num_heads=6, num_kv_heads=3, head_size=2, mlp_width=8, context_length=8
    )
    model = Transformer(config, nnx.Rngs(0))
    place(model, PlacingConfig(mesh=MeshConfig(tensor=2)))
    reason = "every device of the trainer holds 4 parameters whole: 3 kv_heads do not divide by tensor=2"
    assert placing_warnings(model, None) == [reason]
    split = make_mesh(MeshConfig(tensor=2))
    assert placing_warnings(model, split, split)[1:] == [reason.replace("trainer", who) for who in ("engine", "reference")]
    assert placing_warnings(Transformer(config, nnx.Rngs(0)), None) == []
