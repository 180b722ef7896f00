"""The page on tools: its examples run, and its tables say what the code says."""

import re
from pathlib import Path

from stages.tools.limits import ToolLimits

PAGE = Path(__file__).parents[3] / "docs" / "tools.md"


def test_its_blocks_run(monkeypatch):
    monkeypatch.chdir(PAGE.parents[1])
    monkeypatch.setenv("SEARCH_API_KEY", "12345678")
    monkeypatch.setenv("MAIL_TOKEN", "1")
    names = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for block in blocks:
        exec(compile(block, "docs/tools.md", "exec"), names)
    assert len(blocks) == 4
    assert names["make_env"](None) is not None
    assert names["search"]("x") == "asked with a key of 8 characters"


def test_its_defaults_are_those_of_the_code():
    defaults = {name: field.default for name, field in ToolLimits.model_fields.items()}
    told = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE.read_text(), re.MULTILINE))
    assert told == {name: "none" if value is None else f"{value:g}" for name, value in defaults.items()}
