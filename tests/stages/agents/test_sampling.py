import pydantic
import pytest

from stages.agents.guards import TimeLimits
from stages.agents.sampling import SamplingConfig


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (lambda: SamplingConfig(temprature=1.0), "temprature"),
        (lambda: SamplingConfig(temperature=-1), "temperature"),
        (lambda: SamplingConfig(top_k=-1), "top_k"),
        (lambda: SamplingConfig(top_p=0), "top_p"),
        (lambda: SamplingConfig(top_p=1.5), "top_p"),
        (lambda: SamplingConfig(min_p=-0.1), "min_p"),
        (lambda: SamplingConfig(stop_strings=("END", "")), "stop_strings.1"),
        (lambda: SamplingConfig(max_turns=0), "max_turns"),
        (lambda: SamplingConfig(seed=2**31), "seed"),
        (lambda: TimeLimits(close_s=None), "close_s"),
        (lambda: TimeLimits(stepp_s=1), "stepp_s"),
    ],
)
def test_a_config_with_an_unknown_key_or_a_value_out_of_range_is_refused(config, field):
    """S105."""
    with pytest.raises(pydantic.ValidationError, match=field):
        config()


@pytest.mark.parametrize(
    ("changes", "truncates"),
    [
        ({}, False),
        ({"temperature": 0.5, "stop_strings": ("x",)}, False),
        ({"top_k": 1}, True),
        ({"top_p": 0.99}, True),
        ({"min_p": 0.01}, True),
    ],
)
def test_only_what_rules_tokens_out_truncates(changes, truncates):
    assert SamplingConfig(**changes).truncates is truncates
