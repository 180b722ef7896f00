"""A cell skips versions while a load is slow. What follows the policy is then still what its rule says of each version."""

import asyncio
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from flow import Collect, Context, Freshness, Graph, Run
from stages.records import Weights
from stages.train.following import FollowConfig, Following

STEPS = 8


class Steps:
    """A trainer whose parameter is the number of its step."""

    def __init__(self, config: FollowConfig) -> None:
        self.step, self.following = 0, Following(config, self.parameters(0))

    @staticmethod
    def parameters(step: int) -> dict[str, Any]:
        return {"w": jnp.full(2, float(step))}

    def weights(self) -> Weights:
        return Weights(self.parameters(self.step), reference=self.following.published)

    def add(self, value: Any, context: Context) -> None:
        pass

    def finish(self, context: Context) -> Weights:
        self.step += 1
        self.following.advance(self.step, self.parameters(self.step), self.parameters(self.step))
        return self.weights()


def loaded(config: FollowConfig) -> dict[int, float]:
    """The reference of each version that was loaded, in a run that is far ahead of its loads."""
    found: dict[int, float] = {}

    async def load(weights: Weights, version: int) -> None:
        await asyncio.sleep(0.02)
        found[version] = float(weights.reference["w"][0])

    steps, graph = Steps(config), Graph("ahead")
    weights = graph.latest("weights", Weights, load=load)
    prompts = graph.source("prompts", list(range(64)))
    members = graph.repeat("members", prompts, n=1)

    async def episode(value: int, context: Context) -> int:
        return value

    episodes = graph.stage("episodes", episode, reads=weights)
    groups = graph.group("groups", episodes)
    sink = graph.sink("trainer", steps, collect=Collect(1, steps=STEPS))
    prompts >> members >> episodes >> groups >> sink
    graph.feedback(sink, weights, initial=steps.weights, freshness=Freshness(3))
    asyncio.run(Run(graph.build(quiet=True)).finish())
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("every", "decay"), [(1, 0.5), (2, 0.0), (2, 0.75)])
def test_a_version_that_was_never_loaded_is_in_the_references_of_those_after_it(every: int, decay: float) -> None:
    """Against the recursion over all versions, in plain Python."""
    found = loaded(FollowConfig(every=every, decay=decay))
    assert len(found) < STEPS + 1, "the run must skip some, or it shows nothing"
    reference, wanted = 0.0, {0: 0.0}
    for step in range(1, STEPS + 1):
        if step % every == 0:
            reference = decay * reference + (1 - decay) * step
        wanted[step] = reference
    np.testing.assert_allclose([found[version] for version in found], [wanted[version] for version in found], rtol=1e-6)
