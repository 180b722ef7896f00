"""One load for a cell whose values several take over: the engine, a reference that follows, a critic."""

import asyncio

from stages.records import LoadWeights, Weights


def load_all(*loads: LoadWeights) -> LoadWeights:
    """All of them at once, as one: a version is in force when everyone has it.

    So with ``max_lag=0``, where the groups of a step are opened once the weights of the step before it are in force, whoever
    scores a group has the version that sampled it, however long each load takes. With a lag above 0 a group is scored by what
    is in force when its turn comes, which may be newer than what sampled it.

    The load that is returned raises what the first of them in the order given raised, once all have ended.
    """

    async def load(weights: Weights, version: int) -> None:
        outcomes = await asyncio.gather(*(one(weights, version) for one in loads), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    return load
