"""A tool: the model is shown its signature and its docstring."""

from stages.tools.function import FunctionTool

CAPITALS = {"france": "paris", "italy": "rome", "peru": "lima", "norway": "oslo"}


def look_up(country: str) -> str:
    """Look up the capital of a country."""
    return CAPITALS.get(country, "unknown")


LOOK_UP = FunctionTool(look_up, deadline_s=5)
