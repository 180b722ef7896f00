"""Imports go one way: graphs -> stages -> flow, families apart, no loops. Typing-only and in-function imports count."""

import ast
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAYERS = {"flow": 0, "stages": 1, "graphs": 2}
FLOW_MAY_IMPORT = {"flow", "anyio", "msgspec", "perfetto", "google.protobuf"}
"""The protobuf runtime comes with perfetto, whose message classes are made of it."""
FLOW_TESTING_MAY_IMPORT = {"hypothesis"}
"""For strategies and shrinking, inside the functions that need it: who does not call them need not have it."""
FREE_FOR_ALL = {"arrays", "records", "policy", "cancellation", "exits", "packages", "memory_in_use", "profile", "roles"}
ALLOWED = {
    ("agents", "envs"): "an agent talks with an environment",
    ("agents", "text"): "an agent renders messages and parses calls",
    ("agents", "tools"): "an agent shows the tools it may call",
    ("envs", "tasks"): "an adapter asks the data set that a task came from for its score",
    ("envs", "tools"): "an environment executes tools",
    ("episodes", "agents"): "an episode is an agent",
    ("episodes", "envs"): "in an environment",
    ("episodes", "text"): "written as token ids",
    ("episodes", "tools"): "under time limits that tools know",
    ("scripted", "text"): "what a script says is written as token ids",
    ("batches", "losses"): "what is packed is what the loss says it needs",
    ("checkpoint", "models"): "what a checkpoint holds of a model is what is trained of it",
    ("evaluation", "checkpoint"): "the weights of an evaluation under way go into a commit",
    ("evaluation", "scores"): "what a pinned evaluation found is counted like any other",
    ("models", "gguf_file"): "weights lie in the file that the tokenizer lies in",
    ("text", "gguf_file"): "and it is opened once for both",
    ("rewards", "text"): "a judge is asked and read in the format of its model",
    ("rewards", "tools"): "a reward that fails gives no credential away, and a judge waits for a pool as a tool does",
    ("rollout", "models"): "the engine runs the model",
    ("scoring", "batches"): "a group is packed into rows to be scored",
    ("scoring", "models"): "the model that scores",
    ("train", "advantages"): "the trainer alone has the whole step that advantages are whitened over",
    ("train", "batches"): "the step takes the micro-batches that the packer cuts",
    ("train", "checkpoint"): "the trainer saves its arrays",
    ("train", "losses"): "the step differentiates a loss",
    ("train", "models"): "the step runs the model",
}
"""Pairs of families of which the first may import the second, and why."""

Imports = dict[str, set[str]]


def read_imports() -> Imports:
    """Every module of the three packages with what it imports."""
    files = [file for package in LAYERS for file in sorted((ROOT / package).rglob("*.py"))]
    known = {module_name(file) for file in files}
    return {module_name(file): imports_of(file.read_text(), package_name(file), known) for file in files}


def module_name(file: Path) -> str:
    """``flow/trace/__init__.py`` is ``flow.trace``."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_name(file: Path) -> str:
    """The package that relative imports of a file start from."""
    return ".".join(file.relative_to(ROOT).parent.parts)


def imports_of(source: str, package: str, known: set[str]) -> set[str]:
    """Absolute names of the modules that a file imports, wherever in the file the import stands."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = absolute(node, package)
            found.update(f"{base}.{alias.name}" if f"{base}.{alias.name}" in known else base for alias in node.names)
        elif isinstance(node, ast.Call) and called(node) in {"import_module", "__import__"}:
            found.update(a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str))
    return found


def absolute(node: ast.ImportFrom, package: str) -> str:
    """The module that ``from ... import`` names."""
    if not node.level:
        return node.module or ""
    parents = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*parents, *([node.module] if node.module else [])])


def called(node: ast.Call) -> str:
    """Last name of what is called."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def upward(imports: Imports) -> list[str]:
    """Imports from a higher layer, or from tests and examples."""
    above = {**LAYERS, "tests": 9, "examples": 9}
    return [
        f"{module} imports {target}: arrows go graphs -> stages -> flow"
        for module, targets in imports.items()
        for target in sorted(targets)
        if above.get(target.split(".")[0], -1) > LAYERS[module.split(".")[0]]
    ]


def loop(imports: Imports) -> list[str]:
    """The modules of one import cycle, empty if there is none."""
    inside = {module: {target for target in targets if target in imports} for module, targets in imports.items()}
    try:
        TopologicalSorter(inside).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def foreign_to_flow(imports: Imports) -> list[str]:
    """Imports of flow that are neither the standard library nor on the list."""
    may = sys.stdlib_module_names | FLOW_MAY_IMPORT
    kit = may | FLOW_TESTING_MAY_IMPORT
    return [
        f"{module} imports {target}: flow may import the standard library and {', '.join(sorted(FLOW_MAY_IMPORT))}"
        for module, targets in imports.items()
        if module.split(".")[0] == "flow"
        for target in sorted(targets)
        if not {target.split(".")[0], ".".join(target.split(".")[:2])} & (kit if module.startswith("flow.testing") else may)
    ]


def across_families(imports: Imports) -> list[str]:
    """Imports between stage families that are not on the list."""
    found: list[str] = []
    for module, targets in imports.items():
        for target in sorted(targets):
            ours, theirs = family(module), family(target)
            if ours and theirs and ours != theirs and theirs not in FREE_FOR_ALL and (ours, theirs) not in ALLOWED:
                found.append(
                    f"{module} imports {target}: families meet in stages.records and stages.policy; "
                    f"or add ({ours!r}, {theirs!r}) to ALLOWED with the reason"
                )
    return found


def family(module: str) -> str:
    """``losses`` for ``stages.losses.policy``, empty outside stages."""
    parts = module.split(".")
    return parts[1] if parts[0] == "stages" and len(parts) > 1 else ""


def test_no_import_points_upward():
    assert upward(read_imports()) == []


def test_no_modules_import_each_other_in_a_loop():
    assert loop(read_imports()) == []


def test_flow_imports_only_what_it_may():
    assert foreign_to_flow(read_imports()) == []


def test_stage_families_meet_only_where_allowed():
    assert across_families(read_imports()) == []


def test_the_reader_sees_typing_only_in_function_relative_and_dynamic_imports():
    source = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from stages.records import Task
def later():
    import graphs.cli
    from . import _item
    from .._spec import Node
    importlib.import_module("jax.numpy")
"""
    known = {"flow._core._item", "flow._spec", "stages.records"}
    assert imports_of(source, "flow._core", known) == {
        "typing",
        "stages.records",
        "graphs.cli",
        "flow._core._item",
        "flow._spec",
        "jax.numpy",
    }


def test_the_rules_refuse_what_they_are_for():
    assert len(upward({"flow.a": {"stages.records"}, "stages.b": {"graphs.cli", "flow"}, "graphs.c": {"tests.d"}})) == 3
    assert sorted(set(loop({"flow.a": {"flow.b"}, "flow.b": {"flow.a", "json"}}))) == ["flow.a", "flow.b"]
    assert len(foreign_to_flow({"flow.a": {"json", "google.protobuf.message", "jax"}, "stages.b": {"jax"}})) == 1
    assert len(foreign_to_flow({"flow.testing.a": {"hypothesis"}, "flow.b": {"hypothesis"}})) == 1
    families = {"stages.losses.a": {"stages.records", "stages.models.b"}, "stages.train.c": {"stages.losses.a"}}
    assert len(across_families(families)) == 1
