import numpy as np
import pytest

from stages.envs.adapters.spoken import spoken


@pytest.mark.parametrize(
    ("observation", "text"),
    [
        ("as it is", "as it is"),
        (np.int64(7), "7"),
        (np.array([0.5, 1 / 3], np.float32), "0.5, 0.3333"),
        (np.array([True, False]), "1, 0"),
        ((3, "x", True, None), "3, x, true, none"),
        ({"at": [1, 2], "say": "hello"}, "at: 1, 2\nsay: hello"),
    ],
)
def test_an_observation_of_small_parts_is_text(observation, text):
    assert spoken(observation) == text


@pytest.mark.parametrize("observation", [np.zeros((8, 9), np.uint8), np.array(["x"]), object()])
def test_an_image_and_what_is_no_number_is_refused_with_a_way_out(observation):
    with pytest.raises(ValueError, match=r"expected an observation of texts and at most 64 numbers; got .*describe="):
        spoken(observation)
