import msgspec

from flow import Freshness
from stages.losses.policy import PolicyLoss
from stages.losses.tokens import Needs
from stages.train.advice import advice
from stages.train.config import TrainerConfig

CONFIG = TrainerConfig(row_length=8)
ON_POLICY, LATE = Freshness(0), Freshness(2)


class Plain(msgspec.Struct, frozen=True):
    needs: Needs = Needs(stale=False)


def lines(config: TrainerConfig = CONFIG, loss=None, whiten: bool = False, freshness: Freshness | None = ON_POLICY):
    return list(advice(config, loss or PolicyLoss(), whiten, freshness))


def test_a_step_that_streams_and_a_loss_that_corrects_need_no_advice():
    assert lines() == lines(freshness=LATE) == lines(loss=Plain()) == []


def test_streaming_that_is_lost_is_told_with_every_reason():
    epochs = CONFIG.model_copy(update={"num_epochs": 2})
    (line,) = lines(epochs)
    assert line.startswith("no gradient is taken before the last group of a step is there, because of num_epochs=2; with one")
    (line,) = lines(epochs.model_copy(update={"num_minibatches": 4}), whiten=True)
    assert "num_epochs=2 and num_minibatches=4 and advantages that are whitened over the step" in line
    assert lines(epochs, freshness=None) == []


def test_stale_data_for_a_loss_that_does_not_correct_is_told_with_what_to_set():
    (line,) = lines(loss=Plain(), freshness=LATE)
    assert "max_lag=2 lets in what older weights sampled, and Plain takes it" in line
    assert "set max_lag=0, or take a loss that clips or corrects" in line
    assert lines(loss=Plain(), freshness=None) == []
