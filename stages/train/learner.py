"""Parameters, optimizer state and accumulator on their mesh, with the programs that change them. No metrics, no files.

Who owns what: the optimizer state and the accumulator are this object's alone and are donated. Parameters of the model's own
type are published as they are and others read them while the next ones are made, so they never are donated; where the model has
another type than float32, the float32 ones are nobody else's and are. What is trained, the model itself says: its adapters, or
all of it where it has none. Everything lies on the mesh that the model's parameters lie on. All programs are compiled by
``compile``, the gradient for each shape there is; rows of another shape are an error and never a compilation.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import NamedSharding

from stages.batches.rows import Rows
from stages.losses.tokens import Loss, Tokens
from stages.models.lora import trained
from stages.models.mesh import mesh_of, replicated, row_sharding, shares_of_rows, starting
from stages.roles import compiling, role_span
from stages.train.config import TrainerConfig
from stages.train.optimizer import num_updates
from stages.train.programs import Layout, programs, rows_like, scores_first
from stages.train.step import Outcome, masters

Compiled = Callable[..., Any]


class Learner:
    """What one trainer trains.

    Args:
        model: see ``stages.models.logprobs.Scorable``; all of its state is ``nnx.Param``.
        loss: see ``stages.losses.tokens.Loss``.
        config: see ``TrainerConfig``.
        temperature: what tokens were sampled at; 0 (greedy) stands for 1.

    Attributes:
        parameters: what is trained, in float32.
        published: the same in the model's own types, as they were at the last ``publish``.
        accumulated: sums of gradients since the last update.
        num_compilations: programs compiled.
        temporary_bytes: most that one of them works in, beside what it is given and gives; 0 where the platform does not say.
    """

    def __init__(self, model: nnx.Module, loss: Loss, config: TrainerConfig, temperature: float) -> None:
        graphdef, parameters, frozen = nnx.split(model, trained(model), nnx.Param)
        self._loss, self._config = loss, config
        self._mesh = mesh_of((parameters, frozen))
        self.published, self._frozen = self._on_mesh(parameters), self._on_mesh(frozen)
        layouts = Layout.of(self.published, self._mesh), Layout.of(self._frozen, self._mesh)
        with jax.set_mesh(self._mesh):
            self._made = programs(graphdef, *layouts, loss, config, temperature)
            self.parameters = masters(self.published)
            self.state = self._at_rest(self._made.init(self.parameters))
        self.accumulated = jax.tree.map(
            lambda leaf: jnp.zeros(leaf.shape, leaf.dtype, device=leaf.sharding), self._made.accumulated
        )
        self.num_compilations = self.temporary_bytes = 0
        self._accumulate: dict[tuple[int, ...], Compiled] = {}
        self._logprobs: dict[tuple[int, ...], Compiled] = {}
        self._publish: Compiled | None = None

    def compile(self) -> None:
        """Compile ahead: such programs refuse other shapes, so that nothing can compile later without notice."""
        made, state = self._made, self._state_on_device()
        with jax.set_mesh(self._mesh):
            for shape in self._config.shapes:
                rows = self._spread(rows_like(shape, self._config, self._loss))
                arguments = self.parameters, self.accumulated, self._frozen, rows, np.int32(0)
                self._accumulate[shape] = self._compiled("gradient", shape, made.accumulate, *arguments)
                if scores_first(self._config, self._loss):
                    bare = self._spread(rows_like(shape, self._config, self._loss)._replace(proximal=None))
                    self._logprobs[shape] = self._compiled(
                        "proximal", shape, made.logprobs, self.parameters, self._frozen, bare
                    )
            scalars = np.float32(0), np.float32(0)
            self._update = self._compiled("update", (), made.update, self.parameters, state, self.accumulated, *scalars)
            if made.publish is not None:
                self._publish = self._compiled("publish", (), made.publish, self.parameters)

    def accumulate(self, rows: Rows, version: int) -> jax.Array:
        """Add the gradient of a micro-batch; returns once it is there, so that no more than one is ever in flight.

        Args:
            rows: of a compiled shape.
            version: of the parameters, to tell which tokens they sampled; one that no token has tells of none.

        Returns:
            Float32 [N, L]: log-probabilities of the targets under the parameters, on the device.
        """
        with starting(self._mesh):
            arguments = self.parameters, self.accumulated, self._frozen, self._spread(rows), np.int32(version)
            self.accumulated, logprobs = self._accumulate[rows.ids.shape](*arguments)
        jax.block_until_ready(self.accumulated)
        return jax.block_until_ready(logprobs)

    def logprobs(self, rows: Rows) -> np.ndarray:
        """float32 [N, L]: log-probabilities of the tokens of a micro-batch under the parameters as they are."""
        with starting(self._mesh):
            logprobs = self._logprobs[rows.ids.shape](self.parameters, self._frozen, self._spread(rows))
        return np.asarray(logprobs)

    def pulls(self, rows: Rows) -> tuple[Tokens, np.ndarray]:
        """What the loss reads of a micro-batch, and how it pulls at each log-probability; compiled only when it is asked."""
        with jax.set_mesh(self._mesh), starting(self._mesh):
            pulls = self._made.pulls(self.parameters, self._frozen, self._spread(rows))
        return jax.device_get(pulls)

    def update(self, divisor: float, bound: float) -> Outcome:
        """Change the parameters by what was accumulated, unless that is bad; then accumulate from zero again.

        Args:
            divisor: what the summed loss is divided by; 0 changes nothing.
            bound: largest gradient norm that is applied.

        Returns:
            What was done, on the host.
        """
        state = self._state_on_device()
        with starting(self._mesh):
            self.parameters, state, self.accumulated, outcome = self._update(
                self.parameters, state, self.accumulated, np.float32(divisor), np.float32(bound)
            )
        self.state = self._at_rest(state)
        return jax.device_get(outcome)

    def publish(self) -> Any:
        """Let ``published`` be the parameters as they are now. Arrays that were published before stay what they are."""
        with starting(self._mesh):
            self.published = self.parameters if self._publish is None else self._publish(self.parameters)
        return self.published

    @property
    def devices(self) -> Sequence[jax.Device]:
        """Those of the mesh that are this process's."""
        return [device for device in self._mesh.devices.flat if device.process_index == jax.process_index()]

    @property
    def programs(self) -> Mapping[str, Compiled]:
        """What a step runs, by name and shape. Of one that has compiled; to read."""
        by_shape = {"gradient": self._accumulate, "proximal": self._logprobs}
        found = {f"{name} {rows}x{length}": made for name, all_ in by_shape.items() for (rows, length), made in all_.items()}
        return found | {"update": self._update} | ({} if self._publish is None else {"publish": self._publish})

    @property
    def arrays(self) -> Mapping[str, Any]:
        """What lies on the devices, by what it is; to read, not while a step is under way."""
        weights = {"weights": [self.parameters, self._frozen], "weights, as published": self.published}
        return weights | {"optimizer state": self.state, "gradient": self.accumulated}

    @property
    def num_updates(self) -> int:
        """Updates that were applied, those of a resumed run included."""
        return num_updates(self.state)

    @property
    def saved(self) -> dict[str, Any]:
        """What a run needs beside its published weights to go on: with weights of another type, the float32 ones too."""
        return {"state": self.state} | ({} if self._made.publish is None else {"parameters": self.parameters})

    @property
    def saved_like(self) -> dict[str, Any]:
        """Shapes and places that ``saved`` is to be read in as: on the device."""
        return self.saved | {"state": self._made.state}

    def restore(self, parameters: Any, state: Any) -> None:
        """Go on with what ``parameters`` and ``saved["state"]`` were."""
        self.parameters, self.state = parameters, self._at_rest(state)
        with jax.set_mesh(self._mesh):
            self.published = parameters if self._made.publish is None else self._made.publish(parameters)

    def _at_rest(self, state: Any) -> Any:
        if self._config.optimizer_memory == "device":
            return state
        with role_span("transfer", what="optimizer state", to="host"):
            return self._moved(state, self._made.state_at_rest)

    def _state_on_device(self) -> Any:
        """As the update takes and donates it: the arrays at rest themselves, or a copy of those in the host's memory."""
        if self._config.optimizer_memory == "device":
            return self.state
        with role_span("transfer", what="optimizer state", to="device"):
            places = jax.tree.map(lambda leaf: leaf.sharding, self._made.state)
            return self._moved(self.state, places)

    def _moved(self, state: Any, places: Any) -> Any:
        with starting(self._mesh):
            moved = jax.device_put(state, places)
        return jax.block_until_ready(moved)

    def _compiled(self, name: str, shape: tuple[int, ...], jitted: Any, *arguments: Any) -> Compiled:
        self.num_compilations += 1
        with compiling(name, "x".join(map(str, shape))):
            program = jitted.lower(*arguments).compile()
        memory = program.memory_analysis()
        self.temporary_bytes = max(self.temporary_bytes, memory.temp_size_in_bytes if memory is not None else 0)
        return program

    def _on_mesh(self, parameters: Any) -> Any:
        """Parameters where they lie, those that lie on no mesh on every device."""
        everywhere = replicated(self._mesh)
        return jax.tree.map(
            lambda leaf: leaf if isinstance(leaf.sharding, NamedSharding) else jax.device_put(leaf, everywhere), parameters
        )

    def _spread(self, rows: Rows) -> Any:
        return jax.device_put(rows, row_sharding(self._mesh))


def check_rows(config: TrainerConfig, model: nnx.Module) -> None:
    """Refuse rows of a micro-batch that do not divide over the devices that share them.

    Raises:
        ValueError: naming them.
    """
    mesh = mesh_of(nnx.state(model, nnx.Param))
    shares = shares_of_rows(mesh)
    uneven = [rows for rows, _ in config.shapes if rows % shares]
    if uneven:
        raise ValueError(
            f"expected rows_per_microbatch to be a multiple of {shares}, the devices that share the rows on a mesh of "
            f"data={mesh.shape['data']} times fsdp={mesh.shape['fsdp']}, and its parts by split_last too; got "
            f"{' and '.join(map(str, uneven))}, in the config of Trainer; change either"
        )
