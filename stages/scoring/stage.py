"""Scores the sampled tokens of a group under a model: ``Group -> Group``, for stages that need its opinion.

A reference or a teacher gives log-probabilities at the temperature the tokens were sampled at, a critic gives values. The
members' rows are packed into a few static shapes, whose programs are compiled when the stage opens: nothing compiles later.

What a score that is none means:

* A member that failed, or sampled nothing, is handed on unscored.
* A member with a number that is not finite is scored once more with nobody beside it, since what is broken in one segment may
  reach others in its row. If it is broken by itself it fails: status ``model_error``, one line of error, no reward. The others
  keep their scores.

The numbers of a member are those of any other group to rounding: where it lies in a row may change the order of sums.
"""

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self

import anyio.to_thread
import jax
import msgspec
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from flow import Context
from stages.batches.plan import Shape
from stages.batches.rows import RowFiller
from stages.models.critic import ActorCritic
from stages.models.logprobs import target_logprobs
from stages.models.mesh import row_sharding, shares_of_rows, starting
from stages.models.transformer import Transformer
from stages.records import Episode, Group, Status, Weights
from stages.roles import Role, compiling
from stages.scoring.config import ScoringConfig
from stages.scoring.held import Held
from stages.scoring.targets import cut, is_scored, problem_of, put, units_of

Fills = Literal["reference", "teacher", "values"]
"""Field of ``Episode`` that a stage fills."""
_ROLES = {"reference": "reference", "teacher": "teacher", "values": "critic"}
"""Its track in the trace."""


class TokenScores:
    """Fills one field of each episode. An async context manager; it belongs on a node that is placed on ``Threads()``.

    Args:
        model: to score with: a decoder for log-probabilities, and for values the model that is trained, whose critic begins as
            its policy is when the first of both opens. Its parameters are taken when the stage opens.
        fills: ``reference`` and ``values`` take over what the trainer publishes of them; a teacher never changes.
        config: see ``ScoringConfig``.
        temperature: that the tokens were sampled at; 0 (greedy) stands for 1.
        mesh: devices of its own; ``None`` for where the model lies.
        fetch: fills in the model's parameters when the stage opens; ``None`` where somebody else does.

    Raises:
        ValueError: the rows of a batch do not divide over the devices that share them.
    """

    def __init__(
        self,
        model: Transformer | ActorCritic,
        fills: Fills,
        config: ScoringConfig,
        *,
        temperature: float = 1.0,
        mesh: Mesh | None = None,
        fetch: Callable[[], object] | None = None,
    ) -> None:
        self._model, self._fills, self._config, self._temperature = model, fills, config, temperature
        self._mesh, self._fetch = mesh, fetch
        self._held = self._described()
        self._computing = threading.Lock()
        self._in_force: Any = None
        self.num_compilations = 0
        self._shapes = self._shared_shapes()

    @property
    def resting(self) -> tuple[Any, Any]:
        """Shapes and places of what rests here between groups: (what is its own, what is frozen)."""
        return self._held.resting

    @property
    def programs(self) -> Mapping[str, Any]:
        """What it runs, compiled, by name and shape. Of an open stage; to read."""
        return {f"score {rows}x{length}": program for (rows, length), program in self._programs.items()}

    @property
    def arrays(self) -> Mapping[str, Any]:
        """What it has, where it rests. Of an open stage; to read."""
        return {"weights": self._held.arrays}

    async def __aenter__(self) -> Self:
        await anyio.to_thread.run_sync(self.open)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._fetch is not None:  # loaded for this stage: nobody else has it
            nnx.update(self._model, *self._held.resting)
        self._held = self._described()

    def open(self) -> None:
        """Take the model's parameters and compile. What ``async with`` does, for callers without an event loop."""
        if self._fetch is not None:
            nnx.update(self._model, *self._held.resting)  # read straight to where it rests
            self._fetch()
        if isinstance(self._model, ActorCritic):
            self._model.begin()
        self._held, self._in_force = self._described(), None
        self._role = Role(_ROLES[self._fills])
        with self._role.span("open"):
            self._held.open()
            with jax.set_mesh(self._held.mesh):
                jitted = scores_of(self._held.graphdef, self._fills == "values", self._temperature)
                self._programs = {shape: self._compiled(jitted, shape) for shape in self._shapes}

    def _compiled(self, jitted: Any, shape: tuple[int, int]) -> Callable[..., jax.Array]:
        self.num_compilations += 1
        place = row_sharding(self._held.mesh)
        rows = [jax.ShapeDtypeStruct(shape, dtype, sharding=place) for dtype in (np.int32, np.int32, np.int32, bool)]
        with compiling("score", "x".join(map(str, shape))):
            return jitted.lower(*self._held.shapes, *rows).compile()

    async def load(self, weights: Weights, version: int) -> None:
        """Put in force what a version has for this stage; returns when it is. Of an open stage.

        Raises:
            ValueError: it is not of this model, or lacks a critic.
        """
        published = {"reference": weights.reference, "values": weights.critic, "teacher": None}[self._fills]
        if published is None and self._fills == "values":
            raise ValueError(
                f"expected weights with a critic, got version {version} without one (scoring, values); train an ActorCritic"
            )
        if published is not None and published is not self._in_force:
            await anyio.to_thread.run_sync(self._held.take, published, self._fills)
            self._in_force = published

    def __call__(self, group: Group, context: Context) -> Group:
        """Score one group.

        Raises:
            ValueError: see ``units_of``.
        """
        wanted = [episode for episode in group.episodes if is_scored(episode)]
        if not wanted:
            return group
        told = {"fills": self._fills, "members": len(wanted)}
        with self._computing, context.span("score", **told), self._role.span("score", **told):
            parameters = self._held.on_devices()
            scores = self._scored(parameters, wanted)
            for index, episode in enumerate(wanted):
                if problem_of(episode, scores[index], self._fills) is not None:
                    scores[index] = self._scored(parameters, [episode])[0]
        filled = {episode.member: self._filled(episode, found) for episode, found in zip(wanted, scores, strict=True)}
        return msgspec.structs.replace(group, episodes=tuple(filled.get(episode.member, episode) for episode in group.episodes))

    def _scored(self, parameters: tuple[Any, Any], episodes: Sequence[Episode]) -> list[np.ndarray]:
        """float32 [T] for each, NaN where nothing was sampled."""
        filler = RowFiller(self._shapes)
        flat = np.full(sum(len(episode.ids) for episode in episodes), np.nan, np.float32)
        for rows in filler.add(units_of(episodes, self._config.row_length, self._fills)) + filler.flush():
            with starting(self._held.mesh):
                spread = jax.device_put((rows.ids, rows.positions, rows.segments, rows.mask), row_sharding(self._held.mesh))
                scores = self._programs[rows.ids.shape](*parameters, *spread)
            put(flat, rows, np.asarray(scores))
        return cut(flat, episodes)

    def _filled(self, episode: Episode, scores: np.ndarray) -> Episode:
        problem = problem_of(episode, scores, self._fills)
        if problem is not None:
            return msgspec.structs.replace(episode, status=Status.MODEL_ERROR, error=problem, reward=None)
        return msgspec.structs.replace(episode, **{self._fills: scores})

    def _described(self) -> Held:
        model = self._model.critic if isinstance(self._model, ActorCritic) else self._model
        return Held(model, self._mesh, self._config.memory)

    def _shared_shapes(self) -> tuple[Shape, ...]:
        shape = self._held.mesh.shape
        shares = shares_of_rows(self._held.mesh)
        rows = [num for num, _ in self._config.shapes]
        if any(num % shares for num in rows):
            raise ValueError(
                f"expected numbers of rows that are multiples of {shares}, the devices that share them on a mesh of "
                f"data={shape['data']} times fsdp={shape['fsdp']}; got {rows} by rows_per_batch={self._config.rows_per_batch} "
                f"(scoring, {self._fills}); change either"
            )
        return self._config.shared(shares)


@functools.lru_cache(maxsize=8)
def scores_of(graphdef: nnx.GraphDef, values: bool, temperature: float) -> Any:
    """(trained, frozen, ids, positions, segments, mask) -> float32 [B, T], jitted; nothing is compiled yet.

    Targets alone are projected, a chunk at a time, as the trainer does: the logits of a batch never exist whole. Cached: under
    the same object JAX finds what it has compiled, so a second run in a process compiles nothing.

    Args:
        graphdef: of a model split in what is trained and what is frozen.
        values: those of a critic, else log-probabilities of a decoder.
        temperature: of the log-probabilities.
    """

    def score(own: Any, frozen: Any, ids: jax.Array, positions: jax.Array, segments: jax.Array, mask: jax.Array) -> jax.Array:
        model = nnx.merge(graphdef, own, frozen)
        if values:
            return model.values(ids, positions, segments)
        return target_logprobs(model.hidden(ids, positions, segments), model.head, ids, mask, temperature)[0]

    return jax.jit(score)
