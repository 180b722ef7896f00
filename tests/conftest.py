"""What holds for every test: JAX on two virtual CPU devices, strict in dtype and rank, and no network.

Set here because it must be in force before the first import of jax, and because subprocesses inherit it.
"""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

ROOT = Path(__file__).parents[1]

# How long an example takes says how busy the machine is, not whether the test holds.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["JAX_NUM_CPU_DEVICES"] = "2"
# XLA's CPU threads starve, and a sharded loop hangs, unless there are at least twice as many as virtual devices.
os.environ["NPROC"] = "16"
os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"
# Many tests, and the processes they start, compile the same programs.
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(ROOT / ".cache" / "compiled-by-tests")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

STRICT = {"advantages", "losses", "models", "rollout"}
"""Stage families whose arithmetic is all ours. Elsewhere optax runs, whose schedules and moments mix dtypes."""


@pytest.fixture(autouse=True)
def strict_dtypes(request: pytest.FixtureRequest) -> Iterator[None]:
    """No dtype is promoted on the quiet in the families on the list."""
    folders = Path(request.fspath).relative_to(Path(__file__).parent).parts
    if folders[0] != "stages" or folders[1] not in STRICT:
        yield
        return
    import jax

    with jax.numpy_dtype_promotion("strict"):
        yield


HASTY = {"advantages", "losses", "scoring", "train"}
"""Stage families whose tests compile many programs that run for milliseconds: as fast as XLA can, whatever comes of it."""


@pytest.fixture(autouse=True, scope="module")
def hasty_compilation(request: pytest.FixtureRequest) -> Iterator[None]:
    """Of what is on the list, and of the batteries; in processes that a test starts too."""
    folders = request.path.relative_to(Path(__file__).parent).parts
    if folders[0] != "battery" and (folders[0] != "stages" or folders[1] not in HASTY):
        yield
        return
    import jax

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
        jax.config.update("jax_disable_most_optimizations", True)
        yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="session")
def on_eight_devices() -> Callable[[Path], Any]:
    """Runs a script in a process of its own, with eight virtual devices, and gives the JSON that it prints."""

    def run(script: Path) -> Any:
        # Without optimisation of what is compiled: it runs for milliseconds.
        settings = {"JAX_NUM_CPU_DEVICES": "8", "NPROC": "16", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, script], env={**os.environ, **settings}, cwd=ROOT, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return json.loads(done.stdout)

    return run


TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="session")
def pretrained_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face folder as transformers would save it: a tiny decoder, a byte-level BPE of its own, a ChatML template."""
    from flax import nnx
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    from stages.models.config import ModelConfig
    from stages.models.huggingface import write_huggingface
    from stages.models.transformer import Transformer

    folder = tmp_path_factory.mktemp("hub") / "tiny-instruct"
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<|im_start|>", "<|im_end|>", "<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    bpe.train_from_iterator(["What is the sum of one and two? The sum is three. What is the capital?"] * 4, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, chat_template=TEMPLATE, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    config = ModelConfig(
        vocab_size=len(tokenizer), width=16, num_layers=2, num_heads=2, num_kv_heads=1, head_size=8, mlp_width=32,
        context_length=128,
    )  # fmt: skip
    write_huggingface(Transformer(config, nnx.Rngs(0)), folder)
    tokenizer.save_pretrained(folder)
    (folder / "generation_config.json").write_text('{"eos_token_id": [1, 2]}')
    return folder


@pytest.fixture
def full_disk() -> Iterator[Callable[[int | None], None]]:
    """Let files of this process grow to so many bytes and no further, as on a full disk; ``None`` frees it again.

    A write that meets the bound is cut short.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def bound(size: int | None) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft if size is None else size, hard))

    yield bound
    bound(None)
    signal.signal(signal.SIGXFSZ, ignored)
