from pathlib import Path
from typing import Any

import numpy as np

from graphs.replays.dumped import dump_step
from graphs.rl_config import RlConfig
from stages.batches.pack import make_batch
from stages.records import Batch, Segment
from stages.text.compact import CompactChat
from stages.tools.calculator import calculator_tool
from stages.train.config import TrainerConfig

CHAT = CompactChat([calculator_tool()])


def batch(birth: int, advantage: float) -> Batch:
    ids = np.arange(8, 14, dtype=np.int32)
    mask = np.array([False, False, True, True, False, True])
    logprobs, versions = np.where(mask, np.float32(-0.5), np.float32(np.nan)), np.where(mask, 3, -1).astype(np.int32)
    segment = Segment(ids, mask, np.full(6, advantage, np.float32), logprobs, versions, name=f"episode {birth}.0")
    return make_batch(birth, [(segment,)])


def config(**trainer: Any) -> RlConfig:
    return RlConfig(trainer=TrainerConfig(row_length=16, rows_per_microbatch=2, **trainer))


def test_arrays_are_those_that_the_trainer_packs_and_the_text_says_whose_they_are(tmp_path: Path) -> None:
    dump_step(tmp_path / "batch", [batch(4, 0.25), batch(7, -1.0)], config(), CHAT)
    [folder] = (tmp_path / "batch").iterdir()
    with np.load(folder / "rows.npz") as rows:
        assert rows["0.ids"].shape == (2, 16)
        np.testing.assert_array_equal(rows["0.ids"][0, :6], np.arange(8, 14))
        assert int(rows["0.mask"].sum()) == 6
        assert sorted(np.unique(rows["0.advantages"])) == [-1.0, 0.0, 0.25]
    lines = (folder / "rows.txt").read_text().splitlines()
    assert lines[0] == "1 micro-batches, 6 targets, divisor 6, groups [4, 7]"
    [told] = [line for line in lines if "episode 4.0" in line]
    assert told.startswith(
        "micro-batch 0, row 0, tokens 0 to 5: episode 4.0; 3 targets, weight 1, advantages 0.25, logprobs -0.5"
    )
    assert told.endswith("versions 3")
    text = lines[lines.index(told) + 1]
    parts = [CHAT.decode(np.array(ids)) for ids in ([8, 9], [10, 11], [12], [13])]
    assert text == f"{parts[0]}[[{parts[1]}]]{parts[2]}[[{parts[3]}]]"


def test_each_minibatch_of_a_step_has_a_folder_of_its_own(tmp_path: Path) -> None:
    dump_step(tmp_path / "batch", [batch(0, 1.0), batch(1, 2.0)], config(num_minibatches=2), CHAT)
    found = {folder.name: (folder / "rows.txt").read_text().splitlines()[0] for folder in (tmp_path / "batch").iterdir()}
    assert found == {
        "minibatch-0": "1 micro-batches, 3 targets, divisor 3, groups [0]",
        "minibatch-1": "1 micro-batches, 3 targets, divisor 3, groups [1]",
    }


def test_a_step_without_signal_has_nothing_in_it(tmp_path: Path) -> None:
    dump_step(tmp_path / "batch", [make_batch(0, [])], config(), CHAT)
    assert (tmp_path / "batch" / "minibatch-0" / "rows.txt").read_text().startswith("0 micro-batches, 0 targets, divisor 0")
