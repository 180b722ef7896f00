"""The pages speak of what exists, every config field is explained, and no file knows the machine it was written on."""

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Each pattern holds a bracket, so that it does not find itself.
MACHINE = re.compile(
    r"(?<![\w.])/(?:hom[e]/\w|roo[t]/|User[s]/\w|op[t]/\w|wor[k]/\w|mn[t]/\w)|[A-Z]:\\User[s]|pypi[.]org|pythonhosted[.]org"
    r"|--(?:extra-)?index-ur[l]|--find-link[s]|https?://[^\s\"']*/simpl[e]\b|://\d+\.\d+\.\d+\.\d+[^\s]*/simpl[e]"
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_verb_in_a_page_is_in_the_makefile(page):
    verbs = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert verbs_of(page.read_text()) - verbs == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_of_the_project_leads_somewhere(page):
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    assert [target for target in targets if "://" not in target and not (page.parent / target).exists()] == []


def test_verbs_are_read_from_code_only():
    text = "We make sure. Run `make test`, then\n\n```\nmake run-llm\n```\n\n    make PYTHON=python3.12 check\n"
    assert verbs_of(text) == {"test", "run-llm", "check"}


@pytest.mark.parametrize("file", [f for p in ("stages", "graphs") for f in sorted((ROOT / p).rglob("*.py"))], ids=str)
def test_every_config_field_has_a_line_and_unknown_keys_are_refused(file):
    assert config_faults(file.read_text()) == []


def test_config_faults_are_found():
    source = '''
class Good(BaseModel, extra="forbid"):
    size: int = 3
    """Rows, at least 1."""
class Heir(Good):
    depth: int = 1
class Open(pydantic.BaseModel):
    """Not strict."""
    model_config = ConfigDict(frozen=True)
    width: int
    """Columns."""
class Record(msgspec.Struct):
    x: int
'''
    assert config_faults(source) == [
        'Open accepts unknown keys: give it extra="forbid"',
        "Heir.depth has no docstring line: say meaning, unit, what None means",
    ]


def test_no_file_names_a_machine_or_a_package_host():
    found = [
        f"{file.relative_to(ROOT)}:{number}: {match.group()}"
        for file in project_files()
        for number, line in enumerate(text_of(file).splitlines(), 1)
        if (match := MACHINE.search(line))
    ]
    assert found == []


@pytest.mark.parametrize("tail", ["me/ann/x", "ot/.cache", "rs/ann"])
def test_machine_paths_are_found(tail):
    start = {"me/ann/x": "/ho", "ot/.cache": "/ro", "rs/ann": "/Use"}[tail]
    assert MACHINE.search(f"see {start}{tail}")
    assert not MACHINE.search(f"see runs{start}{tail}")


def verbs_of(markdown: str) -> set[str]:
    """Words that follow ``make`` in code spans and code blocks."""
    code = re.findall(r"```.*?```|`[^`\n]+`|^ {4}.*$", markdown, flags=re.DOTALL | re.MULTILINE)
    return {verb for part in code for verb in re.findall(r"\bmake (?:[A-Z_]+=\S+ )*([a-z][a-z-]*)", part)}


def config_faults(source: str) -> list[str]:
    """What is wrong with the pydantic models of a file. A model from another file is taken to be right there."""
    classes = {node.name: node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)}
    models = [node for node in classes.values() if "BaseModel" in lineage(node, classes)]
    loose = [
        f'{node.name} accepts unknown keys: give it extra="forbid"'
        for node in models
        if "BaseModel" in bases(node) and not re.search(r"extra\W+forbid", ast.unparse(node))
    ]
    bare = [
        f"{node.name}.{field} has no docstring line: say meaning, unit, what None means"
        for node in models
        for field in unexplained(node)
    ]
    return loose + bare


def lineage(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> set[str]:
    """Names of all ancestors that can be seen from the file. Names ending in Config count as models."""
    names = bases(node)
    if any(name.endswith("Config") for name in names):
        names = names | {"BaseModel"}
    return names.union(*(lineage(classes[name], classes) for name in names if name in classes and classes[name] is not node))


def bases(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases}


def unexplained(node: ast.ClassDef) -> Iterator[str]:
    """Fields that no docstring follows."""
    for statement, after in zip(node.body, [*node.body[1:], None], strict=True):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        name = statement.target.id
        if name.startswith("_") or name == "model_config" or "ClassVar" in ast.unparse(statement.annotation):
            continue
        if not (isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str)):
            yield name


def project_files() -> Iterator[Path]:
    """Files that belong to the project: those no line of .gitignore names."""
    ignored = [line.strip().rstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line.strip()]
    folders = [ROOT]
    for folder in folders:
        for path in sorted(folder.iterdir()):
            if path.name == ".git" or path.is_symlink() or any(fnmatch(path.name, pattern) for pattern in ignored):
                continue
            if path.is_dir():
                folders.append(path)
            else:
                yield path


def text_of(file: Path) -> str:
    return file.read_bytes().decode("utf-8", "replace")
