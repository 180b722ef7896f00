"""Deliberate faults of the engine, each of which the suite must catch. A fault that survives is a hole in the tests.

A mutant is applied in the process: the source of one function, with one text replaced, takes its place. The text must occur
exactly once, so a mutant that no longer fits the code is a failure too. What stands in ``mutants.toml`` is all there is.
"""

import gc
import importlib
import inspect
import logging
import signal
import textwrap
import time
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from probes import probe

MUTANTS: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("mutants.toml").read_text())["mutant"]
PROBES = sorted({(mutant["probe"], tuple(sorted(mutant.get("arguments", {}).items()))) for mutant in MUTANTS})


SLOW = {"saved"}
"""Probes of seconds."""
BUDGET_S = 20
"""A probe that takes longer has not caught its mutant: a hang is to be seen by the probe, not by who waits for it."""


class OutOfTime(KeyboardInterrupt):
    """Raised in the middle of a probe. No plain exception, which a task would keep."""


def find(at: str) -> tuple[Any, str, Any]:
    """The owner of a function, its name there, and what stands there."""
    module, _, name = at.partition(":")
    owner: Any = importlib.import_module(module)
    *classes, name = name.split(".")
    for part in classes:
        owner = getattr(owner, part)
    return owner, name, inspect.getattr_static(owner, name)


def mutated(at: str, old: str, new: str) -> Any:
    """The function with the fault in it.

    Raises:
        AssertionError: the text does not occur exactly once.
    """
    *_, found = find(at)
    function = found.fget if isinstance(found, property) else found
    source = inspect.getsource(function)
    assert source.count(old) == 1, f"{at}: expected the text once, got it {source.count(old)} times: {old}"
    names: dict[str, Any] = {}
    exec(compile(textwrap.dedent(source.replace(old, new)), at, "exec"), function.__globals__, names)
    return names[function.__name__]


@pytest.fixture
def unheard() -> Iterator[None]:
    """What a broken engine leaves behind (tasks, coroutines, logs) is no failure of the test that broke it."""

    def stop(*_: object) -> None:
        raise OutOfTime

    logging.disable()
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(BUDGET_S)
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        patch.setattr("sys.unraisablehook", lambda _: None)
        yield
        signal.alarm(0)
        gc.collect()
    signal.signal(signal.SIGALRM, before)
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(each, marks=[pytest.mark.slow] * (each["probe"] in SLOW)) for each in MUTANTS],
    ids=lambda mutant: mutant["what"],
)
def test_a_deliberate_fault_is_caught(mutant, monkeypatch, unheard):
    """C1 to C5, S2, S3, S4, F1 to F4, G1, G5, P1, P2."""
    owner, name, _ = find(mutant["at"])
    monkeypatch.setattr(owner, name, mutated(mutant["at"], mutant["old"], mutant["new"]))
    began = time.perf_counter()
    try:
        probe(mutant["probe"], mutant.get("arguments", {}))
    except Exception as error:
        said = str(error).splitlines()
        print(f"caught in {time.perf_counter() - began:.2f} s by {type(error).__name__}: {said[0] if said else ''}")
        return
    except OutOfTime:
        pytest.fail(f"the probe '{mutant['probe']}' takes longer than {BUDGET_S} s with this fault: {mutant['what']}")
    pytest.fail(f"survived the probe '{mutant['probe']}': {mutant['what']}")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "arguments"), PROBES, ids=[name for name, _ in PROBES])
def test_a_probe_passes_where_there_is_no_fault(name, arguments):
    """A probe that always fails would catch everything and prove nothing."""
    probe(name, dict(arguments))


def test_a_text_that_does_not_fit_the_code_is_a_failure():
    with pytest.raises(AssertionError, match="expected the text once, got it 0 times"):
        mutated("flow._core.channel:Line.leave", "not there", "pass")
