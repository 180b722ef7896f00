from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from graphs.algorithms import ppo, reinforce_pp
from graphs.calculator import CalculatorConfig, calculator
from graphs.evaluate import EvaluateConfig
from graphs.rl_config import RlConfig
from stages.agents.sampling import SamplingConfig
from stages.losses.policy import PolicyLoss


@pytest.mark.parametrize(
    ("changes", "got"),
    [
        ({"top_k": 20}, "temperature=1, top_k=20, top_p=1, min_p=0"),
        ({"top_p": 0.95}, "temperature=1, top_k=0, top_p=0.95, min_p=0"),
        ({"min_p": 0.05}, "temperature=1, top_k=0, top_p=1, min_p=0.05"),
        ({"temperature": 0.0}, "temperature=0, top_k=0, top_p=1, min_p=0"),
    ],
)
def test_training_refuses_what_the_trainer_could_not_score(changes: dict[str, Any], got: str) -> None:
    """S80, S81: the trainer's log-probabilities are those of all tokens. Evaluation trains nothing, so it may."""
    with pytest.raises(ValidationError) as caught:
        RlConfig.model_validate({"sampling": changes})
    [fault] = caught.value.errors()
    assert fault["loc"] == ("sampling",)
    assert f"got {got}, in rl.sampling; set them back there" in fault["msg"]
    assert EvaluateConfig(sampling=SamplingConfig(**changes)).sampling.temperature == changes.get("temperature", 1.0)


def test_training_takes_a_temperature_and_stop_strings() -> None:
    sampling = SamplingConfig(temperature=0.7, stop_strings=("\n",))
    assert RlConfig(sampling=sampling).sampling == sampling


def test_build_warns_of_streaming_that_is_lost_and_of_stale_data_without_a_correction(
    config: Callable[..., CalculatorConfig],
) -> None:
    """What the trainer and its loss know of themselves, told by the graph they are in."""
    small = config()

    def warnings(**changes: Any) -> list[str]:
        rl = RlConfig.model_validate({**{name: getattr(small.rl, name) for name in RlConfig.model_fields}, **changes})
        (phase,) = (phase for phase in calculator(small.model_copy(update={"rl": rl})).phases if phase.main)
        return [warning for warning in phase.make(None).build(quiet=True).warnings if "rl.trainer" in warning]

    several = small.rl.trainer.model_copy(update={"num_epochs": 2})
    assert warnings() == warnings(max_lag=1) == []
    (lost,) = warnings(trainer=several)
    assert "no gradient is taken before the last group of a step is there, because of num_epochs=2" in lost
    (stale,) = warnings(max_lag=1, loss=PolicyLoss(against="proximal"))
    assert "max_lag=1 lets in what older weights sampled, and PolicyLoss takes it" in stale
    assert warnings(loss=PolicyLoss(against="proximal")) == []


def test_what_is_dear_is_noted_and_what_changes_with_the_weights_says_that_it_reads_them(
    config: Callable[..., CalculatorConfig],
) -> None:
    """P3: episodes, a judge's rewards, and all that a replay is made of, are not made again after a kill."""

    def edges(rl: RlConfig) -> tuple[set[str], set[str]]:
        (phase,) = (phase for phase in calculator(config(rl=rl)).phases if phase.main)
        spec = phase.make(None).build(quiet=True).spec
        return {edge.name for edge in spec.edges if edge.durable}, {name for name, node in spec.nodes.items() if node.reads}

    plain = config().rl
    assert edges(plain) == ({"episodes->groups", "rewards->advantages"}, {"episodes"})
    assert edges(reinforce_pp(plain))[0] == {"episodes->groups", "rewards->reference", "reference->advantages"}
    assert edges(reinforce_pp(plain))[1] == {"episodes"}  # a reference that stays what it is
    assert edges(ppo(plain)) == ({"episodes->groups", "rewards->values", "values->advantages"}, {"episodes", "values"})
