"""The engines that are compared: a new one is a line in ``ENGINES``, and what opens it."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from graphs.bench.engines.llama import LlamaPolicy
from graphs.bench.engines.talks import Candidate
from graphs.bench.plain import PlainPolicy
from graphs.parts import Parts
from stages.rollout.config import EngineConfig
from stages.rollout.engine import Engine
from stages.text.compact import CompactChat


class AbsentError(Exception):
    """An engine is not on this machine; what there would have to be is its text."""


@dataclass(frozen=True)
class Ground:
    """What an engine is opened on.

    Attributes:
        parts: model, chat and shapes of the program.
        llama_server: program of llama.cpp's server, which may not be there.
    """

    parts: Parts
    llama_server: Path


Maker = Callable[[Ground], AbstractAsyncContextManager[Candidate]]
"""Opens an engine with the model of the parts; raises ``AbsentError`` where it is not on this machine."""


@dataclass(frozen=True)
class Kind:
    """An engine that is compared.

    Attributes:
        name: for the tables.
        make: opens it.
        draws: whether it draws by our rule; else it is asked for the most likely tokens only.
        together: whether it serves all talks at once.
        tolerance: most that a log-probability may be off from that of the plain forward pass, in nats.
    """

    name: str
    make: Maker
    draws: bool = True
    together: bool = True
    tolerance: float = 1e-4


@asynccontextmanager
async def _plain(ground: Ground) -> AsyncGenerator[Candidate]:
    parts = ground.parts
    yield PlainPolicy(parts.model, parts.engine.context_length, parts.chat.decode)


def _engine(slots: int) -> Maker:
    def make(ground: Ground) -> AbstractAsyncContextManager[Candidate]:
        config: EngineConfig = ground.parts.engine.config
        shaped = config.model_copy(
            update={"slots": slots, "prefill_rows": min(slots, config.prefill_rows), "eviction": "never"}
        )
        return Engine(ground.parts.model, shaped, decode=ground.parts.chat.decode)

    return make


def _llama(ground: Ground) -> AbstractAsyncContextManager[Candidate]:
    parts, program = ground.parts, ground.llama_server
    if not program.exists():
        raise AbsentError(f"no {program}; make bench-peers builds it")
    try:
        import gguf  # noqa: F401 - writes its model
    except ImportError as error:
        raise AbsentError("no gguf package, which writes its model; install headrace[gguf]") from error
    assert isinstance(parts.chat, CompactChat)
    return LlamaPolicy(program, parts.model, parts.chat.vocabulary.tokens, parts.chat.stop_ids[0], slots=8)


PLAIN = "plain forward pass"
ENGINES: Sequence[Kind] = (
    Kind(PLAIN, _plain, together=False),
    Kind("engine, 1 slot", _engine(1)),
    Kind("engine, 8 slots", _engine(8)),
    Kind("engine, 32 slots", _engine(32)),
    Kind("llama.cpp server, 8 slots", _llama, draws=False),
)
"""The first one is what the others are judged by."""
