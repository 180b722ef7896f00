"""Pools and rates that a graph declares for the tools of its episodes, and the check that it has all that they name.

Not those of the engine, which ``engine_pools.py`` sizes by its settings.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from stages.text.chat import ToolSpec
from stages.tools.tool import needs_of


class ToolPoolsConfig(BaseModel):
    """Settings of a graph whose episodes call tools."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pools: dict[str, Annotated[int, Field(ge=1)]] = {}
    """Units of each pool that tools name as their ``pool``: so many of their calls at once."""
    rates: dict[str, Annotated[float, Field(gt=0)]] = {}
    """Starts a second of each rate that tools name as their ``rate``."""


def with_tool_pools(
    engine: Mapping[str, int], config: ToolPoolsConfig, tools: Sequence[ToolSpec], graph: str
) -> Mapping[str, int]:
    """The pools of a graph: those of its engine and those declared for its tools.

    Args:
        engine: sizes of the engine's pools.
        config: what is declared.
        tools: that episodes show the model; what they name is to be there.
        graph: name of the graph, for the message.

    Raises:
        ValueError: naming each tool whose pool or rate is missing, and each pool that the engine has already.
    """
    known = {*config.pools, *config.rates}
    faults = [f"{tool.name} needs {name}" for tool in tools for name in needs_of(tool) if name not in known]
    faults += [f"{name} is the engine's" for name in sorted(known & set(engine))]
    if faults:
        raise ValueError(
            "expected pools and rates for all that tools name, by names of their own; got "
            f"{', '.join(sorted(known)) or 'none'}: {'; '.join(faults)}; in {graph}.pools and {graph}.rates; declare there "
            "what is missing"
        )
    return {**engine, **config.pools}
