"""A model asked in the plainest way: the whole context forward for each token, nothing cached, nobody beside it.

What the engine is judged by: it shares the model's code and the rule of the draw with it, and none of its caches, slots, steps
or threads. And a policy that says what a script has, with the log-probabilities that the weights in force give to it.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from graphs.parts import Parts
from stages.models.transformer import Transformer
from stages.policy import Sample, SampleRequest
from stages.records import Message, Weights
from stages.rollout.requests import request_problem
from stages.rollout.sampling import Draw, request_key, sample_tokens
from stages.rollout.stops import Decode, Stops
from stages.text.chat import Chat

Script = Callable[[str, tuple[int, int, int, int, int]], str | Message]
"""The conversation so far as text, marks shown, and the key of the request -> what is said."""
_sample = jax.jit(sample_tokens)


class PlainForward:
    """Logits of the next token, one context at a time.

    Args:
        model: its parameters are in force at first.
        context_length: most tokens of a context; each is filled up to it, so that one program serves all. It is compiled here.
    """

    def __init__(self, model: Transformer, context_length: int) -> None:
        self.context_length = context_length
        graph, self._parameters = nnx.split(model, nnx.Param)

        @jax.jit
        def logits(parameters: Any, ids_1T: jax.Array, length: jax.Array) -> jax.Array:
            places_1T = jnp.arange(ids_1T.shape[1])[None]
            within = (places_1T < length).astype(jnp.int32)
            return nnx.merge(graph, parameters)(ids_1T, places_1T * within, within)[0]

        self._logits = logits
        self(np.zeros(1, np.int32))

    def put(self, parameters: Any) -> None:
        """Use these from now on."""
        self._parameters = parameters

    def __call__(self, ids: np.ndarray) -> np.ndarray:
        """Scores after each token.

        Args:
            ids: int32 [T], T at most the length of the context.

        Returns:
            float32 [T, V]: row t scores the token after t.
        """
        ids_1T = np.zeros((1, self.context_length), np.int32)
        ids_1T[0, : len(ids)] = ids
        return np.asarray(self._logits(self._parameters, ids_1T, np.int32(len(ids))), np.float32)[: len(ids)]


class PlainPolicy:
    """A ``Policy`` that samples with the plain forward pass, by the engine's rule of the draw. Blocks the loop; for checks.

    Args:
        model: decoder; its parameters are in force at first.
        context_length: most tokens of context and continuation together.
        decode: token ids as text, for stop strings; ``None`` refuses those.
    """

    def __init__(self, model: Transformer, context_length: int, decode: Decode | None = None) -> None:
        self.context_length, self._decode, self._version = context_length, decode, 0
        self._forward, self._vocab_size = PlainForward(model, context_length), model.config.vocab_size

    async def load(self, weights: Weights, version: int) -> None:
        """Use these weights from now on."""
        self._forward.put(weights.parameters)
        self._version = version

    async def sample(self, request: SampleRequest) -> Sample:
        """See ``Policy.sample``.

        Raises:
            ValueError: see there.
        """
        problem = request_problem(request, self.context_length, self._vocab_size, reads_text=self._decode is not None)
        if problem is not None:
            raise ValueError(f"{problem}; in PlainPolicy.sample")
        stops, ids, logprobs = Stops(request, self._decode), request.ids, list[float]()
        most = min(request.max_tokens, self.context_length - len(ids))
        for _ in range(most):
            drawn = _sample(self._forward(ids)[-1:], _draw_of(request), np.array([len(ids)], np.int32))
            ids = np.append(ids, np.int32(drawn.ids_S[0]))
            logprobs.append(float(drawn.logprobs_S[0]))
            if stops.ended_by(ids[len(request.ids) :]):
                break
        sampled = ids[len(request.ids) :]
        stop = "stop" if stops.ended_by(sampled) else "length"
        versions = np.full(len(sampled), self._version, np.int32)
        return Sample(sampled, np.array(logprobs, np.float32), versions, stop)

    def release(self, session: str) -> None:
        """Nothing is kept."""

    def abort(self, session: str) -> None:
        """Whoever samples has the loop: nobody can ask meanwhile."""


class ForcedPolicy:
    """A ``Policy`` that says what a script has, and how likely that was under the weights in force.

    So everything behind it is as with a model that sampled these very tokens, and no rounding can make it sample others.

    Args:
        forward: of the model.
        chat: writes what is said.
        script: what is said.
        in_force: the parameters in force and their version.
    """

    def __init__(self, forward: PlainForward, chat: Chat, script: Script, in_force: Callable[[], tuple[Any, int]]) -> None:
        self._forward, self._chat, self._script, self._in_force = forward, chat, script, in_force

    @property
    def context_length(self) -> int:
        """See ``Policy``."""
        return self._forward.context_length

    async def sample(self, request: SampleRequest) -> Sample:
        """See ``Policy.sample``. A turn that is longer than the budget is cut."""
        said = self._script(self._chat.decode(request.ids), request.key)
        ids = self._chat.write(Message("assistant", said) if isinstance(said, str) else said)
        kept = ids[: min(request.max_tokens, self.context_length - len(request.ids))]
        parameters, version = self._in_force()
        self._forward.put(parameters)
        logits = self._forward(np.append(request.ids, kept).astype(np.int32))
        before = logits[len(request.ids) - 1 : -1].astype(np.float64) / (request.temperature or 1.0)
        scores = before - np.logaddexp.reduce(before, axis=-1, keepdims=True)
        logprobs = scores[np.arange(len(kept)), kept].astype(np.float32)
        stop = "stop" if int(kept[-1]) in request.stop_ids else "length"
        return Sample(kept, logprobs, np.full(len(kept), version, np.int32), stop)

    def release(self, session: str) -> None:
        """Nothing is kept."""

    def abort(self, session: str) -> None:
        """Nothing takes long."""


def forced(forward: PlainForward, parts: Parts, script: Script) -> ForcedPolicy:
    """One that says what a script has under the weights that the engine of a program has in force."""
    return ForcedPolicy(forward, parts.chat, script, lambda: (parts.engine.parameters, parts.engine.statistics().version))


def _draw_of(request: SampleRequest) -> Draw:
    """The request as a draw of one slot."""
    return Draw(
        np.array([request.temperature], np.float32), np.array([request.top_k], np.int32), np.array([request.top_p], np.float32),
        np.array([request.min_p], np.float32), np.array([request.untempered]), request_key(request.key)[None],
    )  # fmt: skip
