"""The engine of a program: in this process, or servers that are given its weights."""

from jax.sharding import Mesh

from stages.models.transformer import Transformer
from stages.rollout.config import EngineConfig
from stages.rollout.engine import Engine
from stages.rollout.http.config import HttpConfig
from stages.rollout.http.engine import HttpEngine
from stages.text.chat import Chat


def make_engine(
    model: Transformer, config: EngineConfig, chat: Chat, servers: HttpConfig | None, mesh: Mesh | None = None
) -> Engine | HttpEngine:
    """An engine that is not open yet.

    Args:
        model: whose parameters it has at first.
        config: shapes of an engine in this process.
        chat: reads stop strings.
        servers: that sample in its place; ``None`` for an engine in this process.
        mesh: its devices; see ``Engine``.

    Raises:
        ValueError: servers, and devices for an engine here.
    """
    if servers is None:
        return Engine(model, config, decode=chat.decode, mesh=mesh)
    if mesh is not None:
        raise ValueError("expected an engine-mesh or servers, got both; servers have devices of their own: leave the mesh out")
    return HttpEngine(servers, model, chat.vocab_size)
