import pydantic
import pytest

from stages.agents.guards import TimeLimits
from stages.agents.sampling import SamplingConfig


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (lambda: SamplingConfig(temprature=1.0), "temprature"),
        (lambda: SamplingConfig(temperature=-1), "temperature"),
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
