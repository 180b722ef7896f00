from typing import Any

import pytest
from pydantic import ValidationError

from graphs.evaluate import EvaluateConfig
from graphs.rl_config import RlConfig
from stages.agents.sampling import SamplingConfig


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
