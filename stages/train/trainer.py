"""The trainer: a sink that collects the groups of a step, in birth order, and gives new weights.

A step with one update streams: the gradient of a micro-batch is taken as soon as its rows are there, while other groups of the
same step are still being made. One with several passes, several minibatches, or advantages whitened over the step is held until
its last group is there, and so is every step of a trainer told to hold. The engine calls ``add`` for each group and then
``finish``, both on a thread of their own, so blocking is right here.

This file only drives: arrays and programs are in ``learner.py``, the maths in ``step.py``, the bookkeeping in ``metrics.py``,
what an update is made from in ``minibatches.py``, what becomes of a bad one in ``bad_steps.py``.
"""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio.to_thread
import msgspec
import numpy as np
from flax import nnx

from flow import Context, Freshness
from stages.batches.rows import RowFiller, Rows
from stages.cancellation import to_the_end
from stages.checkpoint.store import PARAMETERS, load_arrays, save_arrays
from stages.losses.tokens import Loss
from stages.memory_in_use import device_bytes, device_peak_bytes
from stages.models.critic import ActorCritic, parted, together
from stages.profile import Profile, current_profile
from stages.records import Batch, Weights
from stages.roles import Role
from stages.train.advice import advice
from stages.train.bad_steps import BadSteps, bad_step_error, describe
from stages.train.config import TrainerConfig
from stages.train.digest import digest_of
from stages.train.following import FollowConfig, Following
from stages.train.learner import Learner, check_rows
from stages.train.metrics import StepMeter, StepRow, Updated, skip_reason, step_metrics, warning
from stages.train.minibatches import Minibatch, of_step, order
from stages.train.norms import bound, known, no_norms, window, with_norm
from stages.train.optimizer import learning_rate
from stages.train.programs import scores_first
from stages.train.samples import Samples

NO_VERSION = -2
"""That no token has: after the first update of a step no token was sampled by the parameters as they are."""


RATE = "trainer trained"
"""Counter in the trace."""
OPTIMIZER = "optimizer"
"""Folder, beside that of the parameters, of all else that a run needs to go on."""


class TrainerState(msgspec.Struct, frozen=True):
    """What a run that goes on needs beside the arrays.

    Attributes:
        step: steps finished.
        skipped: updates that changed nothing.
        norms: the latest gradient norms, see ``norms.py``.
    """

    step: int = 0
    skipped: int = 0
    norms: tuple[float, ...] = ()


class Trainer:
    """Trains an NNX model on batches. An async context manager.

    Opening initialises the optimizer and compiles. Closing writes the parameters back into the model. What goes into a commit
    of the run is its state and, through ``save``, its arrays: those after the latest step that is complete.

    Args:
        model: see ``stages.models.logprobs.Scorable``; all of its state is ``nnx.Param``. Its
            adapters are trained, or all of it where there are none.
        loss: see ``stages.losses.tokens.Loss``; hashable, as functions and frozen configs are.
        config: see ``TrainerConfig``.
        bad_steps: where updates that were not applied are kept; ``None`` keeps none.
        temperature: what the episodes are sampled at, so that both sides score one distribution; 0 (greedy) stands for 1.
        whiten: make the advantages of a step have mean 0 and deviation 1 over its tokens, see ``whitening.py``.
        follow: how the reference that is published with the weights follows them; ``None`` publishes none.
        samples: chooses episodes to be looked at, and is told what there is to know of them; ``None`` for none.
        hold: whether a step that could stream is held until its last group is there all the same, as behind a barrier over
            the whole batch. The numbers are those of a step that streams, to the bit.
        clock: seconds, for the times of a step.

    Attributes:
        last_row: what was reported of the last step; ``None`` before the first.

    Raises:
        ValueError: the rows of a micro-batch do not divide over the devices that share them.
    """

    def __init__(
        self,
        model: nnx.Module,
        loss: Loss,
        config: TrainerConfig,
        bad_steps: BadSteps | None = None,
        *,
        temperature: float = 1.0,
        whiten: bool = False,
        follow: FollowConfig | None = None,
        samples: Samples | None = None,
        hold: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._model = model
        self._loss = loss
        self._config = config
        self._temperature = temperature
        self._whiten = whiten
        self._bad_steps = bad_steps
        self._follow = follow
        self._samples = samples or Samples()
        self._clock = clock
        self._schedule = learning_rate(config)
        self._held = config.max_updates > 1 or whiten or hold
        self._step = self._num_skipped = 0
        self._state = TrainerState()
        self._profile: Profile | None = None
        self.last_row: StepRow | None = None
        check_rows(config, model)

    async def __aenter__(self) -> Self:
        await anyio.to_thread.run_sync(self.open)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A run that is being cancelled still keeps the weights it paid for.
        await to_the_end(anyio.to_thread.run_sync(self.close))

    def advice(self, freshness: Freshness | None) -> Iterator[str]:
        """What ``build`` is to warn of; see ``advice.py``."""
        return advice(self._config, self._loss, self._whiten, freshness)

    def open(self) -> None:
        """Initialise and compile. What ``async with`` does, for callers without an event loop."""
        self._role, self._profile = Role("trainer"), current_profile()
        with self._role.span("open"):
            if isinstance(self._model, ActorCritic):
                self._model.begin()
            self._learner = Learner(self._model, self._loss, self._config, self._temperature)
            policy, _ = parted(self._model, self._learner.published)
            self._following = None if self._follow is None else Following(self._follow, policy)
            self._norms = no_norms()
            self._learner.compile()
            self._schedule(0)  # compiles what it is made of
        self._begin()
        self._since = self._clock()

    def close(self) -> None:
        """Write the parameters back into the model. Harmless twice."""
        nnx.update(self._model, self._learner.published)
        self._role.count(RATE, 0.0, "tokens/s")

    def state(self) -> TrainerState:
        """As it was when the step under way began."""
        return self._state

    def restore(self, state: TrainerState) -> None:
        """Go on after this step, with the arrays that ``load`` took over. Bad steps that came after it never were."""
        self._state, self._step, self._num_skipped = state, state.step, state.skipped
        self._norms = window(state.norms)
        self._profiled()
        if self._bad_steps is not None:
            self._bad_steps.forget(after=state.step)

    def save(self, folder: Path) -> Callable[[], None]:
        """Take the arrays as they are after the latest step, and give what writes them; see ``flow.saving.Saves``."""
        parameters = save_arrays(folder / PARAMETERS, self.weights.parameters)
        optimizer = save_arrays(folder / OPTIMIZER, self._beside(self._learner.saved))

        def write() -> None:
            parameters()
            optimizer()

        return write

    def load(self, folder: Path) -> None:
        """Take the arrays over again.

        Raises:
            FileNotFoundError: no trainer saved them.
            ValueError: they are those of another model, or of another optimizer; all differences are named.
        """
        parameters = load_arrays(folder / PARAMETERS, self.weights.parameters)
        beside = load_arrays(folder / OPTIMIZER, self._beside(self._learner.saved_like))
        whole = beside["parameters"] if "parameters" in beside else together(parameters, beside.get("critic"))
        self._learner.restore(whole, beside["state"])
        if self._following is not None:
            self._following.restore(beside["reference"])

    @property
    def step(self) -> int:
        """Steps finished, those before a resume included; the version of the parameters."""
        return self._step

    @property
    def weights(self) -> Weights:
        """What is trained, as it is now, in the model's types: that of the model before the first step. Open trainers only.

        Adapters only, where the model has some: the rest stays what it was. A critic's are apart from the policy's.
        """
        policy, critic = parted(self._model, self._learner.published)
        return Weights(policy, critic, None if self._following is None else self._following.published)

    @property
    def learner(self) -> Learner:
        """Its programs and arrays. Open trainers only; to read, on the trainer's thread."""
        return self._learner

    def digest(self) -> str:
        """Stands for all bits of what is trained, in float32; see ``digest_of`` for what it costs."""
        return digest_of(self._learner.parameters)

    def add(self, batch: Batch, context: Context) -> None:
        """Take in one batch, and the gradient of each micro-batch that is now full, where the step streams.

        Args:
            batch: in birth order.
            context: its ``lag`` enters the metrics.

        Raises:
            ValueError: a unit of the batch is longer than a row.
        """
        self._meter.add(batch, context.lag)
        self._arrived.batches.append(batch)
        self._samples.add(batch)
        if not self._held:
            self._stream(self._filler.add(batch.units), context)

    def finish(self, context: Context) -> Weights:
        """Update the parameters with what was added since the last time, and report the step.

        An update without a target, with a number that is not finite, or with a gradient norm above its bound changes nothing:
        it is counted and reported as skipped, and kept on disk unless it had no target.

        Raises:
            BadStepError: an update was bad, and ``on_bad_step`` is "stop".
            OSError: a bad step could not be saved.
        """
        meter = self._meter
        if self._held:
            self._train_held(context)
        else:
            meter.trains(self._arrived.batches)
            self._stream(self._filler.flush(), context)
            self._update(0, self._arrived, self._step, context)
        with self._doing("publish", context):
            self._learner.publish()
            if self._following is not None:
                masters, _ = parted(self._model, self._learner.parameters)
                self._following.advance(self._step + 1, self.weights.parameters, masters)
        self._step += 1
        self._samples.finish(self._step)
        if self._profile is not None and self._step == self._profile.last:
            with self._role.span("profile"):  # writing it takes seconds, which are not to look like a wait
                self._profile.close()
        self._begin()
        now = self._clock()
        self.last_row = self._row(meter, step_s=now - self._since)
        self._role.count(RATE, meter.num_tokens / (now - self._since), "tokens/s")
        context.report(self.last_row)
        self._since = now
        self._state = TrainerState(self._step, self._num_skipped, known(self._norms))
        return self.weights

    def _begin(self) -> None:
        self._meter, self._arrived = StepMeter(), Minibatch()
        self._filler = self._new_filler()
        self._profiled()

    def _profiled(self) -> None:
        if self._profile is not None:
            self._profile.step_begins(self._step + 1)

    @contextmanager
    def _doing(self, name: str, context: Context, **args: Any) -> Generator[None]:
        """A slice in the worker's track and in that of the trainer's role."""
        step = self._step + 1
        with context.span(name, step=step, **args), self._role.span(name, step, **args):
            yield

    def _new_filler(self) -> RowFiller:
        return RowFiller(self._config.shapes, self._loss.needs.arrays)

    def _stream(self, blocks: Sequence[Rows], context: Context) -> None:
        for rows in blocks:
            self._arrived.rows.append(rows)
            self._take_gradient(rows, self._step, context)

    def _train_held(self, context: Context) -> None:
        parts = of_step(self._arrived.batches, self._config, self._loss, whiten=self._whiten)
        self._meter.trains([batch for part in parts for batch in part.batches])
        if scores_first(self._config, self._loss):
            self._score(parts, context)
        version = self._step
        for epoch in range(self._config.num_epochs):
            for number in order(self._config.seed or 0, self._step + 1, epoch, len(parts)):
                for rows in parts[number].rows:
                    self._take_gradient(rows, version, context)
                self._update(number, parts[number], version, context)
                version = NO_VERSION

    def _score(self, parts: Sequence[Minibatch], context: Context) -> None:
        """Give all rows of a step the log-probabilities of its first parameters: what every pass compares with."""
        begun = self._clock()
        apart, count = 0.0, 0
        with self._doing("proximal", context):
            for part in parts:
                for at, rows in enumerate(part.rows):
                    proximal = self._learner.logprobs(rows)
                    part.rows[at] = rows._replace(proximal=proximal)
                    apart += float(np.abs(proximal - rows.logprobs)[rows.mask].sum(dtype=np.float64))
                    count += int(rows.mask.sum())
        self._meter.proximal_gap = apart / count if count else None
        self._meter.proximal_s += self._clock() - begun

    def _take_gradient(self, rows: Rows, version: int, context: Context) -> None:
        begun = self._clock()
        with self._doing("gradient", context, targets=int(rows.mask.sum()), shape="x".join(map(str, rows.ids.shape))):
            logprobs = self._learner.accumulate(rows, version)
        self._samples.scored(rows, logprobs)
        self._meter.gradient_s += self._clock() - begun
        self._meter.num_microbatches += 1
        self._meter.num_places += rows.segments.size
        self._meter.num_filled += int(np.count_nonzero(rows.segments))

    def _update(self, number: int, minibatch: Minibatch, version: int, context: Context) -> None:
        begun = self._clock()
        most = bound(self._norms, self._config)
        with self._doing("update", context):
            outcome = self._learner.update(minibatch.divisor, most)
        norm, loss = float(outcome.grad_norm), float(outcome.loss)
        updated = Updated(
            minibatch=number,
            num_targets=minibatch.num_targets,
            divisor=minibatch.divisor,
            loss=loss,
            grad_norm=norm,
            sums={name: float(value) for name, value in outcome.sums.items()},
            gap=outcome.gap,
            reason=skip_reason(minibatch.num_targets, bool(outcome.applied), norm, loss),
        )
        self._meter.updates.append(updated)
        if updated.reason not in (None, "no_targets"):
            self._keep_bad(updated, minibatch, most, version)
        if minibatch.num_targets:
            self._norms = with_norm(self._norms, norm)
        self._num_skipped += updated.reason is not None
        self._meter.update_s += self._clock() - begun

    def _keep_bad(self, updated: Updated, minibatch: Minibatch, most: float, version: int) -> None:
        step, folder = self._step + 1, None
        if self._bad_steps is not None:
            facts = describe(step, updated, most, version, self._temperature, self._config, self._loss)
            # Nothing was applied, so these are the parameters that the gradient is of.
            folder = self._bad_steps.save(minibatch, self._learner.publish(), facts)
            self._meter.kept += [] if folder is None else [f"{folder.parent.name}/{folder.name}"]
        if self._config.on_bad_step == "stop":
            raise bad_step_error(step, updated, most, folder)

    def _row(self, meter: StepMeter, *, step_s: float) -> StepRow:
        applied = any(update.reason is None for update in meter.updates)
        row: StepRow = {
            "step": self._step,
            **step_metrics(meter, step_s=step_s),
            "skipped_total": self._num_skipped,
            "epochs": self._config.num_epochs,
            "learning_rate": float(self._schedule(self._learner.num_updates - 1)) if applied else None,
            "compilations": self._learner.num_compilations,
            "temporary_bytes": self._learner.temporary_bytes,
            "device_bytes": device_bytes(self._learner.devices),
            "device_peak_bytes": device_peak_bytes(self._learner.devices),
        }
        row["warning"] = warning(row, self._config.no_signal_warning)
        return row

    def _beside(self, learner: dict[str, Any]) -> dict[str, Any]:
        """What a run needs beside the policy's weights to go on.

        A critic's weights too, unless the float32 ones of policy and critic are there; and a reference that follows.
        """
        parts = {
            "critic": self.weights.critic if "parameters" not in learner else None,
            "reference": None if self._following is None else self._following.state,
        }
        beside = {name: part for name, part in parts.items() if part is not None}
        return learner | beside
