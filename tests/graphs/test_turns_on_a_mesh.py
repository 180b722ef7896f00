"""Engine, trainer and reference on one mesh of two devices: their programs are started one after another."""

import asyncio
import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from flow import Run
from graphs.bench.small import SMALL
from graphs.calculator import calculator
from graphs.placing import PlacingConfig, place
from graphs.rl import rl
from graphs.rl_config import ReferenceConfig
from stages.losses.policy import PolicyLoss
from stages.models import mesh
from stages.models.mesh import MeshConfig, make_mesh, starting
from stages.models.transformer import Transformer
from stages.rollout.engine import Engine


class Noted:
    """A lock that says who holds it."""

    def __init__(self) -> None:
        self._lock, self.holder = threading.Lock(), 0

    def __enter__(self) -> None:
        self._lock.acquire()
        self.holder = threading.get_ident()

    def __exit__(self, *error: object) -> None:
        self.holder = 0
        self._lock.release()


def test_nobody_waits_for_a_turn_on_one_device() -> None:
    one, two = make_mesh(MeshConfig()), make_mesh(MeshConfig(fsdp=2))
    with starting(one):
        assert starting(one) is not starting(two)
    assert starting(two) is starting(make_mesh(MeshConfig(tensor=2)))


@pytest.mark.slow
def test_every_program_over_several_devices_is_started_by_whoever_has_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads that start programs on the same devices at once may leave each device with another order: a deadlock."""
    turn, started = Noted(), Counter[tuple[str, bool]]()
    monkeypatch.setattr(mesh, "_STARTING", turn)
    call = jax.stages.Compiled.__call__

    def noting(program: Any, *args: Any, **kwargs: Any) -> Any:
        started[threading.current_thread().name, turn.holder == threading.get_ident()] += 1
        return call(program, *args, **kwargs)

    parts = calculator(SMALL).parts
    assert parts is not None
    parts.load()
    model = nnx.eval_shape(lambda: Transformer(SMALL.model, nnx.Rngs(0)))
    places = place(model, PlacingConfig(mesh=MeshConfig(fsdp=2)))
    values, shapes = nnx.state(parts.model, nnx.Param), nnx.state(model, nnx.Param)
    nnx.update(model, jax.tree.map(lambda value, leaf: jax.device_put(jnp.array(value), leaf.sharding), values, shapes))
    engine = Engine(model, SMALL.engine, decode=parts.chat.decode, mesh=places.engine)
    shared = replace(parts, model=model, load=lambda: None, engine=engine)
    settings = SMALL.rl.model_copy(
        update={"max_lag": 1, "reference": ReferenceConfig(), "loss": PolicyLoss(kl_coefficient=0.1)}
    )

    async def train() -> None:
        async with shared.engine:
            monkeypatch.setattr(jax.stages.Compiled, "__call__", noting)
            await Run(rl(settings, shared).build(quiet=True)).finish()

    asyncio.run(train())
    assert len({thread for thread, _ in started}) >= 3  # the engine's, the trainer's, and the reference's
    assert [key for key in started if not key[1]] == []
