"""What we write, loaded by transformers with torch: the way back of ``test_parity.py``."""

from pathlib import Path

import numpy as np
import pytest

from stages.models.huggingface import load_huggingface, write_huggingface

GOLDEN = Path(__file__).parent / "golden"
CASES = sorted(path.name for path in GOLDEN.iterdir())


@pytest.mark.extra
@pytest.mark.parametrize("case", CASES)
def test_written_folder_gives_the_same_logits_in_transformers(case, tmp_path):
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM

    write_huggingface(load_huggingface(GOLDEN / case, dtype="float32"), tmp_path / "model")
    model, told = AutoModelForCausalLM.from_pretrained(
        tmp_path / "model", attn_implementation="eager", dtype=torch.float32, output_loading_info=True
    )
    assert not any(told[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    golden = np.load(GOLDEN / case / "golden.npz")
    with torch.no_grad():
        logits = model(torch.from_numpy(golden["ids"]).long()).logits.numpy()
    np.testing.assert_allclose(logits, golden["logits"], atol=1e-5, rtol=0)
