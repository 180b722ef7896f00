"""Every algorithm by name over the one graph: its settings go together, and it takes a step."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx

from flow import Graph, Run
from graphs.algorithms import ALGORITHMS, changed
from graphs.calculator import calculator
from graphs.catalogue import CATALOGUE, starting_from
from graphs.dpo import DpoConfig, dpo
from graphs.parts import Parts
from graphs.rl import penalty_of, rl
from graphs.rl_config import RlConfig
from graphs.scoring_config import CriticConfig, ReferenceConfig, TeacherConfig
from graphs.teacher import Teacher
from stages.advantages.config import AdvantagesConfig
from stages.advantages.credit import credit
from stages.advantages.stage import Advantages
from stages.agents.sampling import SamplingConfig
from stages.batches.stage import Pack, PackConfig
from stages.losses.policy import PolicyLoss
from stages.records import Episode, Status, Task
from stages.rewards.overlong import SoftOverlong
from stages.tasks.arithmetic import ArithmeticConfig, preferences
from stages.tasks.mixture import Mixture
from stages.tasks.source import Tasks

ONE_STEP = {"steps": 1, "groups_per_step": 2, "group_size": 4}


def by_letters(episode: Episode) -> float:
    """A reward of which an untrained policy gets now more and now less."""
    return float(episode.ids[episode.mask].sum() % 7)


@pytest.fixture(scope="module")
def parts(config: Callable[..., Any]) -> Parts:
    made = calculator(config()).parts
    assert made is not None
    made.load()
    return replace(made, reward=by_letters, teacher=Teacher(other_weights(made.model)))


def other_weights(model: Any) -> Any:
    """A model of the same shape that says something else."""
    other = nnx.clone(model)
    nnx.update(other, jax.tree.map(lambda leaf: leaf * 1.5, nnx.state(model, nnx.Param)))
    return other


def outcome(graph: Graph, parts: Parts) -> tuple[Mapping[str, Any], Any]:
    """The row of the step, and by how much the policy changed at most."""
    rows: list[Mapping[str, Any]] = []

    class Watcher:
        def committed(self, node: str, values: Any) -> None: ...

        def reported(self, node: str, row: Mapping[str, Any]) -> None:
            rows.append(row)

    async def go() -> None:
        async with parts.engine:
            await Run(graph.build(quiet=True), watchers=(Watcher(),)).finish()

    before = [np.asarray(leaf) for leaf in jax.tree.leaves(nnx.state(parts.model, nnx.Param))]
    asyncio.run(go())
    after = jax.tree.leaves(nnx.state(parts.model, nnx.Param))
    (row,) = [row for row in rows if row.get("step") == 1]
    return row, max(float(np.abs(new - old).max()) for new, old in zip(after, before, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_takes_a_step(name, config, parts):
    settings = ALGORITHMS[name].change(changed(config().rl, **ONE_STEP))
    row, moved = outcome(rl(settings, parts), parts)
    assert row["skipped"] is None
    assert row["updates"] >= 1
    assert np.isfinite([row["loss"], row["grad_norm"]]).all()
    assert moved > 0.0


@pytest.mark.slow
def test_dpo_pulls_the_replies_of_its_pairs_apart(config, parts):
    settings = DpoConfig(steps=1, pairs_per_step=4, trainer=config().rl.trainer)
    row, moved = outcome(dpo(settings, parts, preferences(ArithmeticConfig(), 0, 8)), parts)
    np.testing.assert_allclose(row["loss"], np.log(2.0), rtol=1e-5)  # policy and reference are still one
    assert moved > 0.0


def test_an_algorithm_is_the_graph_with_stages_swapped(config, parts):
    """By hand, stage for stage, and by name: the same nodes with stages of the same settings."""
    base = changed(config().rl, **ONE_STEP)
    named = rl(ALGORITHMS["gspo"].change(base), parts)
    loss = PolicyLoss(ratio="sequence", clip_low=3e-4, clip_high=4e-4, aggregation="sequence")
    packing = Pack(PackConfig(row_length=base.trainer.row_length), loss.needs)
    by_hand = rl(changed(base, loss=loss), parts).replace("advantages", Advantages()).replace("batches", packing)
    assert by_hand.draw() == named.draw()
    assert by_hand.build(quiet=True).spec.nodes.keys() == named.build(quiet=True).spec.nodes.keys()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"loss": PolicyLoss(kl_coefficient=0.1)}, "no reference, which they read"),
        ({"advantages": AdvantagesConfig(rule="gae")}, "no critic, which they read"),
        ({"advantages": AdvantagesConfig(rule="distill")}, "no teacher, which they read"),
        ({"reference": ReferenceConfig()}, "a reference, which neither reads"),
        ({"loss": PolicyLoss(value_coefficient=0.5), "critic": CriticConfig()}, "expected rule=gae"),
        ({"overlong_buffer": 10_000}, "take a 'fifth' of them"),
    ],
)
def test_models_that_are_asked_and_not_read_or_read_and_not_asked_are_refused(settings, told):
    with pytest.raises(ValueError, match=told):
        RlConfig(**settings)


@pytest.mark.parametrize(
    ("advantages", "least", "told"),
    [
        (AdvantagesConfig(), 2, "rule=grpo of"),
        (AdvantagesConfig(rule="rloo"), 2, "rule=rloo of"),
        (AdvantagesConfig(rule="turns"), 2, "rule=turns of"),
        (AdvantagesConfig(rule="reinforce_pp", baseline=True), 2, "rule=reinforce_pp and a baseline of"),
        (AdvantagesConfig(rule="pass_at_k", k=1), 2, "rule=pass_at_k and k=1 of"),
        (AdvantagesConfig(rule="pass_at_k", k=4), 5, "rule=pass_at_k and k=4 of"),
        (AdvantagesConfig(rule="reinforce_pp"), 1, ""),
        (AdvantagesConfig(rule="gae"), 1, ""),
        (AdvantagesConfig(rule="distill"), 1, ""),
    ],
)
def test_a_group_too_small_for_any_advantage_is_refused_and_no_other(advantages, least, told):
    """By what the rule gives to rewards that differ: nothing to one member less, and something to as many as are asked for."""
    asks = {"critic": CriticConfig() if advantages.needs_critic else None}
    asks |= {"teacher": TeacherConfig() if advantages.needs_teacher else None}
    assert RlConfig(advantages=advantages, group_size=least, **asks).advantages.min_group_size == least
    if least > 1:
        with pytest.raises(ValueError, match=f"group_size of at least {least} with {told} .* got {least - 1}; raise"):
            RlConfig(advantages=advantages, group_size=least - 1)
        smaller, enough = (says_something(size, advantages) for size in (least - 1, least))
        assert (smaller, enough) == (False, True)


def says_something(size: int, advantages: AdvantagesConfig) -> bool:
    """Whether any of ``size`` members with rewards 0, 0, ... and 1 has an advantage."""
    mask = np.array([False, True])
    episodes = [
        Episode(
            Task("1", "?"), 0, member, 0, np.array([1, 2], np.int32), mask, np.where(mask, -0.5, np.nan).astype(np.float32),
            np.where(mask, 0, -1).astype(np.int32), (), (), Status.FINISHED, reward=float(member == size - 1),
        )
        for member in range(size)
    ]  # fmt: skip
    return any(given.any() for given in credit(episodes, np.ones(size, bool), advantages).advantages)


def test_more_minibatches_than_groups_are_refused_and_ppo_has_no_more():
    trainer = RlConfig().trainer.model_copy(update={"num_minibatches": 3})
    with pytest.raises(ValueError, match=r"num_minibatches of at most groups_per_step=2, .* got 3; lower the one"):
        RlConfig(trainer=trainer, groups_per_step=2)
    assert RlConfig(trainer=trainer, groups_per_step=3).trainer.num_minibatches == 3
    counts = [ALGORITHMS["ppo"].change(RlConfig(groups_per_step=groups)).trainer.num_minibatches for groups in (1, 3, 16)]
    assert counts == [1, 3, 4]


def test_the_command_line_starts_from_an_algorithm():
    default, rest = starting_from(CATALOGUE["calculator"], ["--algorithm", "dapo", "--rl.steps", "3"])
    assert rest == ["--rl.steps", "3"]
    assert default.rl == ALGORITHMS["dapo"].change(CATALOGUE["calculator"].config().rl)
    assert starting_from(CATALOGUE["calculator"], ["--algorithm=dapo"])[0] == default
    assert CATALOGUE["rloo"].default.rl.advantages.rule == "rloo"
    with pytest.raises(LookupError, match="did you mean 'dapo'"):
        starting_from(CATALOGUE["calculator"], ["--algorithm", "dappo"])
    with pytest.raises(ValueError, match="expected a program of reinforcement learning"):
        starting_from(CATALOGUE["evaluate"], ["--algorithm", "grpo"])
    with pytest.raises(LookupError, match=r"got 'dpo', in --algorithm; .*: headrace run dpo$"):
        starting_from(CATALOGUE["calculator"], ["--algorithm", "dpo"])
    with pytest.raises(ValueError, match=r"a program that can name a teacher.*; headrace run distill --model PATH --policy"):
        starting_from(CATALOGUE["calculator"], ["--algorithm", "distill"])
    assert starting_from(CATALOGUE["smollm2"], ["--algorithm", "distill"])[0].rl.advantages.rule == "distill"
    with pytest.raises(ValueError, match="expected a name, got nothing"):
        starting_from(CATALOGUE["calculator"], ["--algorithm"])


def test_a_constant_length_left_open_follows_what_is_set_after_the_algorithm():
    """An algorithm's name comes before the settings beside it: what it takes from them is taken when all are there."""
    default, _ = starting_from(CATALOGUE["calculator"], ["--algorithm", "dr_grpo"])
    shorter = changed(default.rl, sampling=SamplingConfig(max_tokens_per_turn=8, max_turns=2))
    assert (default.rl.packed_needs.constant_length, shorter.packed_needs.constant_length) == (16 * 3, 8 * 2)
    assert changed(shorter, advantages=AdvantagesConfig(whiten=True)).packed_needs.constant_length == 16
    own = changed(shorter, loss=PolicyLoss(aggregation="constant", constant_length=100))
    assert own.packed_needs.constant_length == 100
    assert RlConfig().packed_needs.constant_length is None


def test_the_penalty_of_length_is_over_a_fifth_of_what_an_episode_may_sample_in_the_end():
    default, _ = starting_from(CATALOGUE["calculator"], ["--algorithm", "dapo"])
    shorter = changed(default.rl, sampling=SamplingConfig(max_tokens_per_turn=8, max_turns=2))
    buffers = [penalty_of(config)["length"] for config in (default.rl, shorter, changed(shorter, overlong_buffer=5))]
    assert buffers == [(SoftOverlong(48, 9), 1.0), (SoftOverlong(16, 3), 1.0), (SoftOverlong(16, 5), 1.0)]
    tiny = changed(default.rl, sampling=SamplingConfig(max_tokens_per_turn=1, max_turns=1))
    assert penalty_of(tiny) == {"length": (SoftOverlong(1, 1), 1.0)}
    with pytest.raises(ValueError, match="overlong_buffer"):
        changed(shorter, overlong_buffer=0)


@pytest.mark.slow
def test_a_mixture_takes_the_place_of_the_prompts(config, parts):
    """Two sources with names of their own, both trained on."""
    halves = {"easy": (Tasks(parts.train[:32], seed=0), 1), "hard": (Tasks(parts.train[32:], seed=0), 1)}
    settings = changed(config().rl, **ONE_STEP)
    row, moved = outcome(rl(settings, parts).replace("prompts", Mixture(halves, seed=0)), parts)
    assert row["num_groups"] == 2
    assert moved > 0.0
