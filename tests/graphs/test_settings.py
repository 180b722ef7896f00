"""What a config refuses is told in its own sentences, with the path of each setting."""

import pytest
from pydantic import ValidationError

from graphs.rl_config import RlConfig
from graphs.settings import read_settings, refusal
from stages.losses.policy import PolicyLoss


def test_every_fault_has_its_path_and_what_was_got() -> None:
    with pytest.raises(ValidationError) as caught:
        RlConfig.model_validate({"steps": 0, "trainer": {"row_length": 1}, "group_sizes": 2})
    assert refusal(caught.value, "rl").splitlines() == [
        "rl.steps: input should be greater than or equal to 1, got 0",
        "rl.trainer.row-length: input should be greater than or equal to 2, got 1",
        "rl.group-sizes: extra inputs are not permitted, got 2",
    ]


def test_a_sentence_of_ours_stays_as_it_is_and_the_root_has_no_path(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match=r"^expected no dual_clip with objective='cispo'") as caught:
        read_settings(PolicyLoss, ["--objective", "cispo", "--dual-clip", "3"], "loss")
    assert not isinstance(caught.value, ValidationError)
    assert capsys.readouterr().err == ""


def test_what_is_no_refusal_of_a_config_is_said_by_the_parser(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_settings(PolicyLoss, ["--objectiv", "cispo"], "loss")
    assert "--objective" in capsys.readouterr().err
