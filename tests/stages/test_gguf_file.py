"""What is said of a file that is no whole GGUF file."""

from pathlib import Path

import numpy as np
import pytest

from stages.gguf_file import open_gguf

gguf = pytest.importorskip("gguf")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("gguf") / "whole.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_token_list(["a", "bb", "é"])
    writer.add_tensor("token_embd.weight", np.ones((4, 8), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


@pytest.mark.parametrize("share", [0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0])
def test_a_file_of_which_the_end_is_missing_is_told_as_cut(share: float, whole: bytes, tmp_path: Path) -> None:
    """From the first keys to the last byte of the last tensor, which here ends the file without padding."""
    cut = whole[: int(share * len(whole)) - 1]
    (tmp_path / "cut.gguf").write_bytes(cut)
    told = (
        rf"expected a whole GGUF file, got one of {len(cut)} bytes that is cut or damaged \(.*\), in .*cut.gguf; fetch it again"
    )
    with pytest.raises(ValueError, match=told):
        open_gguf(tmp_path / "cut.gguf")


def test_a_file_that_says_one_thing_twice_is_told_as_damaged(tmp_path: Path) -> None:
    """Two keys are made one by a change of their letters."""
    writer = gguf.GGUFWriter(tmp_path / "twice.gguf", "llama")
    writer.add_string("general.architecturf", "llama")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    damaged = (tmp_path / "twice.gguf").read_bytes().replace(b"general.architecturf", b"general.architecture")
    (tmp_path / "twice.gguf").write_bytes(damaged)
    with pytest.raises(ValueError, match=r"expected a whole GGUF file, got .*Duplicate general.architecture"):
        open_gguf(tmp_path / "twice.gguf")


def test_a_file_of_another_kind_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "other.gguf").write_bytes(b"PK\x03\x04" * 8)
    with pytest.raises(ValueError, match=r"expected a GGUF file, got '.*other.gguf', which is none \(.*\); check the path"):
        open_gguf(tmp_path / "other.gguf")
