"""The trainer: a sink that collects the groups of a step, in birth order, and gives new weights.

The gradient of a micro-batch is taken as soon as its rows are there, while other groups of the same step are still being made.
The engine calls ``add`` for each group and then ``finish``, both on a thread of their own, so blocking is right here. The
maths is in ``step.py``, the bookkeeping in ``metrics.py``; this file only drives them.

Who owns what: the optimizer state and the accumulator are this object's alone and are donated. Parameters are published, others
read them while the next ones are made, so they never are. What is trained, the model itself says: its adapters, or all of it
where it has none. Everything lies on the mesh that the model's parameters lie on. Both programs are compiled when the trainer
opens, for the one shape there is; a batch of another shape is an error and never a compilation.
"""

import contextlib
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import anyio.to_thread
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import NamedSharding

from flow import Context
from stages.batches.rows import RowFiller, Rows, empty_rows
from stages.cancellation import to_the_end
from stages.checkpoint.store import CheckpointStore
from stages.losses.tokens import Loss
from stages.models.critic import ActorCritic, parted, together
from stages.models.lora import trained
from stages.models.mesh import mesh_of, replicated, row_sharding
from stages.records import Batch, Weights
from stages.train.config import TrainerConfig
from stages.train.following import FollowConfig, Following
from stages.train.metrics import Row, StepMeter, episode_metrics, flow_metrics, gap_metrics, loss_metrics, skip_reason, warning
from stages.train.optimizer import learning_rate, num_updates
from stages.train.programs import Layout, programs
from stages.train.step import Outcome, masters


class Trainer:
    """Trains an NNX model on batches. An async context manager.

    Opening initialises the optimizer and compiles. Closing writes the parameters back into the model, saves the last step, and
    reports a save that failed.

    Args:
        model: called as ``model(ids_BT, positions_BT, segments_BT) -> logits_BTV``; all of its state is ``nnx.Param``. Its
            adapters are trained, or all of it where there are none.
        loss: see ``stages.losses.tokens.Loss``; hashable, as functions and frozen configs are.
        config: see ``TrainerConfig``.
        checkpoints: where to save, opened and closed with the trainer; ``None`` saves nothing.
        temperature: what the episodes are sampled at, so that both sides score one distribution; 0 (greedy) stands for 1.
        resume: go on from the latest step in ``checkpoints`` (parameters, optimizer state and step); False wants it empty.
        follow: how the reference that is published with the weights follows them; ``None`` publishes none.
        clock: seconds, for the times of a step.

    Raises:
        ValueError: the rows of a micro-batch do not divide over the devices that share them.
    """

    def __init__(
        self,
        model: nnx.Module,
        loss: Loss,
        config: TrainerConfig,
        checkpoints: CheckpointStore | None = None,
        *,
        temperature: float = 1.0,
        resume: bool = False,
        follow: FollowConfig | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._model = model
        self._loss = loss
        self._config = config
        self._temperature = temperature
        self._checkpoints = checkpoints
        self._resume = resume
        self._follow = follow
        self._clock = clock
        self._stack = contextlib.ExitStack()
        self._schedule = learning_rate(config)
        self._step = self._saved_step = self._num_skipped = self._num_compilations = 0
        _check_rows(config, model)

    async def __aenter__(self) -> Self:
        await anyio.to_thread.run_sync(self.open)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A run that is being cancelled still keeps the weights it paid for.
        await to_the_end(anyio.to_thread.run_sync(self.close))

    def open(self) -> None:
        """Initialise, restore where asked, compile. What ``async with`` does, for callers without an event loop.

        Raises:
            ValueError: the checkpoint folder holds steps of another run.
        """
        if isinstance(self._model, ActorCritic):
            self._model.begin()
        graphdef, parameters, frozen = nnx.split(self._model, trained(self._model), nnx.Param)
        self._mesh = mesh_of((parameters, frozen))
        self._published, self._frozen = self._on_mesh(parameters), self._on_mesh(frozen)
        layouts = Layout.of(self._published, self._mesh), Layout.of(self._frozen, self._mesh)
        with jax.set_mesh(self._mesh):
            made = programs(graphdef, *layouts, self._loss, self._config, self._temperature)
            self._parameters = masters(self._published)
            self._state = made.init(self._parameters)
        self._publish = made.publish
        policy, _ = parted(self._model, self._published)
        self._following = None if self._follow is None else Following(self._follow, policy)
        with contextlib.ExitStack() as stack:
            if self._checkpoints is not None:
                stack.enter_context(self._checkpoints)
                self._restore(self._checkpoints)
            rows = self._spread(empty_rows(self._config.rows_per_microbatch, self._config.row_length, self._loss.needs.arrays))
            self._accumulated = jax.tree.map(
                lambda leaf: jnp.zeros(leaf.shape, leaf.dtype, device=leaf.sharding), made.accumulated
            )
            # Compiled ahead: such a program refuses another shape, so that nothing can compile later without notice.
            with jax.set_mesh(self._mesh):
                sums = self._accumulated
                self._accumulate = self._compiled(made.accumulate, self._parameters, sums, self._frozen, rows, np.int32(0))
                self._update = self._compiled(made.update, self._parameters, self._state, sums, np.float32(0))
            self._stack = stack.pop_all()
        self._filler = RowFiller(self._config.rows_per_microbatch, self._config.row_length, self._loss.needs.arrays)
        self._version = 0
        self._meter = StepMeter()
        self._since = self._clock()

    def close(self) -> None:
        """Write the parameters back into the model and save the last complete step, if that was not done. Harmless twice.

        Raises:
            OSError: a save failed.
        """
        stack, self._stack = self._stack.pop_all(), contextlib.ExitStack()
        with stack:
            nnx.update(self._model, self._published)
            if self._step > self._saved_step:
                self._save()

    @property
    def step(self) -> int:
        """Steps finished, those of a resumed run included."""
        return self._step

    @property
    def weights(self) -> Weights:
        """What is trained, as it is now, in the model's types: that of the model before the first step. Open trainers only.

        Adapters only, where the model has some: the rest stays what it was. A critic's are apart from the policy's.
        """
        policy, critic = parted(self._model, self._published)
        return Weights(policy, critic, None if self._following is None else self._following.published)

    def add(self, batch: Batch, context: Context) -> None:
        """Take in one batch, and the gradient of each micro-batch that is now full.

        Args:
            batch: in birth order.
            context: its ``lag`` enters the metrics.

        Raises:
            ValueError: a unit of the batch is longer than a row.
        """
        full = self._filler.add(batch.units)
        self._meter.add(batch, context.lag)
        for rows in full:
            self._take_gradient(rows, context)

    def finish(self, context: Context) -> Weights:
        """Update the parameters with what was added since the last time, report the step, and save where it is due.

        A step without a target, or with a number that is not finite, changes nothing: it is counted and reported as skipped.

        Raises:
            OSError: an earlier save failed.
        """
        for rows in self._filler.flush():
            self._take_gradient(rows, context)
        meter, self._meter = self._meter, StepMeter()
        begun = self._clock()
        with context.span("update", step=self._step + 1):
            outcome = self._apply(meter)
        updated = self._clock()
        self._step += 1
        self._version += 1
        if self._following is not None:
            self._following.advance(self._step, self.weights.parameters, parted(self._model, self._parameters)[0])
        self._save_if_due(context)
        now = self._clock()
        context.report(self._row(meter, outcome, update_s=updated - begun, save_s=now - updated, step_s=now - self._since))
        self._since = now
        return self.weights

    def _compiled(self, jitted: Any, *arguments: Any) -> Callable[..., Any]:
        self._num_compilations += 1
        return jitted.lower(*arguments).compile()

    def _take_gradient(self, rows: Rows, context: Context) -> None:
        begun = self._clock()
        with context.span("gradient", step=self._step + 1, targets=int(rows.mask.sum())):
            # Waited for: the span then is the work, and no more than one micro-batch is ever in flight.
            version = np.int32(self._version)
            self._accumulated = jax.block_until_ready(
                self._accumulate(self._parameters, self._accumulated, self._frozen, self._spread(rows), version)
            )
        self._meter.gradient_s += self._clock() - begun
        self._meter.num_microbatches += 1

    def _apply(self, meter: StepMeter) -> Outcome:
        divisor = np.float32(meter.divisor if meter.num_targets else 0)
        self._parameters, self._state, self._accumulated, outcome = self._update(
            self._parameters, self._state, self._accumulated, divisor
        )
        self._set_published()
        return jax.device_get(outcome)

    def _set_published(self) -> None:
        self._published = self._parameters if self._publish is None else self._publish(self._parameters)

    def _on_mesh(self, parameters: Any) -> Any:
        """Parameters where they lie, those that lie on no mesh on every device."""
        everywhere = replicated(self._mesh)
        return jax.tree.map(
            lambda leaf: leaf if isinstance(leaf.sharding, NamedSharding) else jax.device_put(leaf, everywhere), parameters
        )

    def _spread(self, rows: Rows) -> Any:
        return jax.device_put(rows, row_sharding(self._mesh))

    def _row(self, meter: StepMeter, outcome: Outcome, *, update_s: float, save_s: float, step_s: float) -> Row:
        applied = bool(outcome.applied)
        rate = float(self._schedule(num_updates(self._state) - 1)) if applied else None
        self._num_skipped += not applied
        row: Row = {
            "step": self._step,
            "loss": float(outcome.loss) if meter.num_targets else None,
            "grad_norm": float(outcome.grad_norm) if meter.num_targets else None,
            "learning_rate": rate,
            "skipped": skip_reason(meter.num_targets, applied),
            "skipped_total": self._num_skipped,
            **episode_metrics(meter.episodes),
            **flow_metrics(meter, applied),
            **loss_metrics(outcome.sums, meter.num_targets),
            **gap_metrics(outcome.gap),
            "step_s": step_s,
            "gradient_s": meter.gradient_s,
            "update_s": update_s,
            "save_s": save_s,
            "wait_s": step_s - meter.gradient_s - update_s - save_s,
            "tokens_per_second": meter.num_tokens / step_s,
            "gradient_tokens_per_second": meter.num_tokens / meter.gradient_s if meter.gradient_s else None,
            "compilations": self._num_compilations,
        }
        row["warning"] = warning(row, self._config.no_signal_warning)
        return row

    def _save_if_due(self, context: Context) -> None:
        every = self._config.checkpoint_every
        if self._checkpoints is not None and every is not None and self._step % every == 0:
            with context.span("checkpoint", step=self._step):
                self._save()

    def _save(self) -> None:
        if self._checkpoints is not None:
            self._checkpoints.save(self._step, self.weights.parameters, self._optimizer)
            self._saved_step = self._step

    @property
    def _optimizer(self) -> Any:
        """What a run needs beside the policy's weights to go on.

        With weights of another type than float32, those too; else a critic's weights; and a reference that follows.
        """
        critic = self.weights.critic if self._publish is None else None
        parts = {
            "parameters": None if self._publish is None else self._parameters,
            "critic": critic,
            "reference": None if self._following is None else self._following.state,
        }
        beside = {name: part for name, part in parts.items() if part is not None}
        return {"state": self._state, **beside} if beside else self._state

    def _restore(self, checkpoints: CheckpointStore) -> None:
        latest = checkpoints.latest()
        if latest is None:
            return
        if not self._resume:
            raise ValueError(
                f"{checkpoints.folder}: expected no checkpoints of another run, got step {latest}; "
                "choose another run name, or pass resume=True to go on from it"
            )
        wanted = self._optimizer
        saved: Any = checkpoints.restore(self.weights.parameters, wanted)
        beside = saved.optimizer if isinstance(wanted, dict) else {"state": saved.optimizer}
        self._state = beside["state"]
        self._parameters = beside["parameters"] if "parameters" in beside else together(saved.parameters, beside.get("critic"))
        if self._following is not None:
            self._following.restore(beside["reference"])
        self._set_published()
        self._step = self._saved_step = saved.step


def _check_rows(config: TrainerConfig, model: nnx.Module) -> None:
    mesh = mesh_of(nnx.state(model, nnx.Param))
    shares = mesh.shape["data"] * mesh.shape["fsdp"]
    if config.rows_per_microbatch % shares:
        raise ValueError(
            f"expected rows_per_microbatch to be a multiple of {shares}, the devices that share the rows on a mesh of "
            f"data={mesh.shape['data']} times fsdp={mesh.shape['fsdp']}; got {config.rows_per_microbatch}, in the config of "
            "Trainer; change either"
        )
