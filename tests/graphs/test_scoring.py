"""What a graph asks other models: put together from parts, over pretrained models, with what of memory it takes."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import pytest
from flax import nnx
from transformers import AutoTokenizer

from flow import Graph
from graphs.calculator import CalculatorConfig, calculator
from graphs.memory import memory_needs
from graphs.parts import Parts
from graphs.placing import PlacingConfig, place
from graphs.program import Program, Training
from graphs.scoring import Scoring, scoring
from graphs.scoring_config import CriticConfig, ReferenceConfig, TeacherConfig
from graphs.teacher import Teacher, check_vocabulary, pretrained_teacher
from stages.models.config import ModelConfig
from stages.models.critic import ActorCritic
from stages.models.huggingface import write_huggingface
from stages.models.lora import LoraConfig, add_lora
from stages.models.mesh import MeshConfig, make_mesh
from stages.models.transformer import Transformer
from stages.records import Group
from stages.train.following import FollowConfig

FOLLOWS = ReferenceConfig(follow=FollowConfig(every=4))


def parts_of(settings: CalculatorConfig, **changes: Any) -> Parts:
    parts = calculator(settings).parts
    assert parts is not None
    return dataclasses.replace(parts, **changes)


def put_together(parts: Parts, **asked: Any) -> Scoring:
    return scoring(parts, temperature=1.0, group_size=4, row_length=64, **asked)


def larger(settings: CalculatorConfig, **changes: Any) -> Transformer:
    """A teacher of another shape."""
    config = settings.model.model_copy(update={"width": 24, "num_heads": 3, "num_kv_heads": 3, **changes})
    return nnx.eval_shape(lambda: Transformer(config, nnx.Rngs(0)))


def test_nodes_stand_in_order_and_only_where_they_are_asked_for(config: Callable[..., CalculatorConfig]) -> None:
    parts = parts_of(config(), teacher=Teacher(larger(config())))
    asked = put_together(parts, reference=ReferenceConfig(), teacher=TeacherConfig(), critic=CriticConfig())
    graph = Graph("scored")
    source = graph.source("groups", [Group(0, ())])
    last = asked.after(graph, source)
    last >> graph.sink("trained", lambda group, context: None)
    assert last.name == "values"
    assert [edge.source for edge in graph.spec().edges] == ["groups", "reference", "teacher", "values"]
    assert isinstance(asked.model, ActorCritic)
    assert asked.follow is None
    none = put_together(parts)
    assert none.model is parts.model
    assert none.after(graph, source) is source
    assert none.load(parts.engine.load) == parts.engine.load
    assert put_together(parts, reference=FOLLOWS).follow == FOLLOWS.follow


@pytest.mark.parametrize(
    ("group_size", "mesh", "rows"),
    [(1, MeshConfig(), 1), (5, MeshConfig(), 5), (64, MeshConfig(), 8), (1, MeshConfig(data=2), 2), (5, MeshConfig(fsdp=2), 6)],
)
def test_a_batch_has_a_row_for_each_member_and_as_many_as_devices_can_share(
    group_size: int, mesh: MeshConfig, rows: int
) -> None:
    config = ReferenceConfig().shaped((16, 64), group_size, make_mesh(mesh))
    assert config.shapes == ((rows, 64), (rows * 4, 16))
    assert ReferenceConfig(rows_per_batch=3).shaped((64,), group_size, make_mesh(mesh)).rows_per_batch == 3


def test_a_teacher_that_is_missing_or_lacks_tokens_is_refused(config: Callable[..., CalculatorConfig]) -> None:
    with pytest.raises(ValueError, match="expected a teacher, got none, in the parts of the program"):
        put_together(parts_of(config()), teacher=TeacherConfig())
    small = parts_of(config(), teacher=Teacher(larger(config(), vocab_size=8)))
    with pytest.raises(ValueError, match=r"expected a teacher with each of the \d+ tokens .* got one of 8, in teacher; choose"):
        put_together(small, teacher=TeacherConfig())


def test_a_reference_that_the_trainer_holds_anyway_does_not_rest_in_host_memory(
    config: Callable[..., CalculatorConfig],
) -> None:
    parts = parts_of(config())
    put_together(parts, reference=ReferenceConfig(memory="host"))
    add_lora(parts.model, LoraConfig(rank=2))
    with pytest.raises(
        ValueError, match=r"got what is beneath the adapters of the policy, which the trainer holds, in reference\.memory"
    ):
        put_together(parts, reference=ReferenceConfig(memory="host"))


def needs(config: CalculatorConfig, parts: Parts, **asked: Any) -> dict[str, int]:
    program = calculator(config)
    training = Training(config.rl.trainer, config.rl.loss, 1.0, put_together(parts, **asked))
    phase = dataclasses.replace(program.phases[2], training=training)
    found = memory_needs(Program("p", None, parts, (phase,)))
    return {need.what.split(",")[0]: need.num_bytes for need in found}


def test_memory_counts_what_scores_once_for_each_copy(config: Callable[..., CalculatorConfig]) -> None:
    """Against the weights' own size: a frozen copy, one that follows, an average, a teacher, a critic; none of it twice."""
    settings = config()
    parts = parts_of(settings, teacher=Teacher(larger(settings)))
    plain = needs(settings, parts)
    weights = plain["weights"]

    def more(parts: Parts = parts, **asked: Any) -> dict[str, int]:
        found = needs(settings, parts, **asked)
        return {what: size - plain.get(what, 0) for what, size in found.items() if size != plain.get(what, 0)}

    assert more(reference=ReferenceConfig()) == {"the reference": weights}
    assert more(reference=ReferenceConfig(memory="host")) == {}
    assert more(reference=FOLLOWS) == {"the reference that follows": weights}
    assert more(reference=ReferenceConfig(follow=FollowConfig(decay=0.9))) == {"the reference that follows": weights}
    teacher = sum(leaf.size * 4 for leaf in jax.tree.leaves(nnx.state(larger(settings), nnx.Param)))
    assert more(teacher=TeacherConfig()) == {"the teacher": teacher}
    critic = more(critic=CriticConfig())
    assert critic["weights"] == critic["gradient"] == weights + 4 * settings.model.width
    assert "the critic" not in critic
    adapted = parts_of(settings)
    add_lora(adapted.model, LoraConfig(rank=2))
    assert "the reference" not in needs(settings, adapted, reference=ReferenceConfig())


def test_memory_of_a_reference_on_its_own_devices_is_not_the_trainers(config: Callable[..., CalculatorConfig]) -> None:
    settings = config()
    parts = parts_of(settings)
    places = place(parts.model, PlacingConfig(reference_mesh=MeshConfig()))
    alone = needs(settings, dataclasses.replace(parts, reference_mesh=places.reference), reference=ReferenceConfig())
    assert alone == needs(settings, parts)


def test_three_sets_of_devices_follow_one_another_and_too_few_are_refused() -> None:
    shape = ModelConfig(
        vocab_size=8, width=4, num_layers=1, num_heads=2, num_kv_heads=1, head_size=2, mlp_width=4, context_length=8
    )
    model = nnx.eval_shape(lambda: Transformer(shape, nnx.Rngs(0)))
    places = place(model, PlacingConfig(reference_mesh=MeshConfig()))
    assert places.engine is None
    assert places.reference is not None
    assert [device.id for device in places.reference.devices.flat] == [1]
    three = PlacingConfig(engine_mesh=MeshConfig(), reference_mesh=MeshConfig())
    wanted = (
        "expected 3 devices, 1 of the trainer, 1 of the engine and 1 of the reference; got 2, in engine_mesh and "
        "reference_mesh; make a mesh smaller, or leave engine_mesh or reference_mesh out"
    )
    with pytest.raises(ValueError, match=wanted):
        place(model, three)


@pytest.fixture
def teacher_folder(pretrained_folder: Path, tmp_path: Path) -> Path:
    """A larger model over the same tokenizer, in a folder of its own."""
    tokenizer = AutoTokenizer.from_pretrained(pretrained_folder)
    config = ModelConfig(
        vocab_size=len(tokenizer) + 4, width=24, num_layers=1, num_heads=3, num_kv_heads=3, head_size=8, mlp_width=48,
        context_length=128,
    )  # fmt: skip
    write_huggingface(Transformer(config, nnx.Rngs(1)), tmp_path / "teacher")
    tokenizer.save_pretrained(tmp_path / "teacher")
    return tmp_path / "teacher"


@pytest.mark.slow
def test_a_pretrained_teacher_of_another_shape_is_described_and_fetched_later(
    pretrained_folder: Path, teacher_folder: Path
) -> None:
    """Its rows beyond the tokenizer's, with which vocabularies are padded, do not matter."""
    teacher = pretrained_teacher(str(teacher_folder), None, pretrained_folder)
    assert teacher.model.config.width == 24
    assert isinstance(teacher.model.embedding_VW.get_raw_value(), jax.ShapeDtypeStruct)
    assert teacher.fetch is not None
    teacher.fetch()
    assert isinstance(teacher.model.embedding_VW.get_raw_value(), jax.Array)


@pytest.mark.slow
def test_a_teacher_that_reads_ids_otherwise_is_refused_with_the_first_of_them(
    pretrained_folder: Path, teacher_folder: Path
) -> None:
    policy, other = AutoTokenizer.from_pretrained(pretrained_folder), AutoTokenizer.from_pretrained(teacher_folder)
    check_vocabulary(policy, other)
    other.add_tokens(["one of its own"])
    check_vocabulary(policy, other)
    policy.add_tokens(["another"])
    number = len(policy) - 1
    wanted = f"1 of {len(policy)} ids are others .{number}: 'another' is 'one of its own' there., in teacher.model; choose"
    with pytest.raises(ValueError, match=wanted):
        check_vocabulary(policy, other)
