"""``check_stage``: tests any stage against its contract, and tells the smallest input that breaks it."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ._clauses import closed, no_task_left, outputs, raises, returns, untouched
from ._contract import Broken, Subject, broken
from ._disturbed import independent, repeatable, restores, survives_cancels
from ._subject import subject_of
from ._trial import Trial

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

_TRIES = 3
"""Runs that must all block the loop before it is believed: a collection of garbage or a busy machine does it now and then."""


def check_stage(
    stage: Any,
    inputs: "SearchStrategy[Any] | Sequence[Any]",
    *,
    outputs: Any = None,
    per_input: int | tuple[int, int | None] | None = None,
    examples: int = 100,
    keep_order: bool = False,
    idempotent: bool = True,
    raises: tuple[type[BaseException], ...] = (),
    cancel_within_s: float = 1.0,
    max_block_s: float | None = 0.05,
    reads: Any = None,
    pools: Mapping[str, int] | None = None,
) -> None:
    """Test a stage against its contract: lists of up to four inputs go through it in real graphs in virtual time.

    The clauses, in the order in which they are checked:

    * *no task left*: no task goes on when an attempt has ended or was cancelled.
    * *closed once*: a stage that is an async context manager leaves nothing open, also where the run fails.
    * *returns*: a run with it comes to an end.
    * *raises*: nothing but what is declared.
    * *types*, *outputs per input*: as its return hint says.
    * *input untouched*: not changed by the stage, also not by an attempt that is cut short.
    * *repeatable*: a second attempt with the same input, path and retry gives the same.
    * *independent*: outputs do not depend on the order of the inputs.
    * *hears a cancel*: cancelled at any await, it ends soon, with the cancel.
    * *cancellation*: after that a second attempt gives what an undisturbed run gives: nothing lost, nothing doubled.
    * *state*: for a stage with ``state()`` and ``restore(state)``, see ``flow.saving``: its state can be written with the type
      that it declares, and a new stage restored from it, and from what is saved beside it, equals one never stopped.
    * *blocks*: it never holds the loop for long, on a real clock. Told only where three runs agree.

    Args:
        stage: a stage, function or object, of which each run gets a deep copy; or a class or function without arguments that
            makes one.
        inputs: a Hypothesis strategy for single inputs; or a list of them, which needs no Hypothesis and is not shrunk.
        outputs: type of every output; ``None``: what its return hint says.
        per_input: outputs for one input, as a number or (least, most), ``most`` ``None`` for any number. ``None``: 1 by its
            hint, or up to 1 where the hint names ``Filtered``, any number where it names ``Many`` or where there is none.
        examples: lists of inputs that are tried.
        keep_order: it may carry something from one input to the next; its node has one worker then.
        idempotent: ``False`` where a second attempt may give another value. That it gives as many is still checked.
        raises: errors that are meant. Others break the contract.
        cancel_within_s: virtual seconds it may take to end when it is cancelled.
        max_block_s: real seconds it may hold the loop; ``None`` for a stage whose node is on ``Threads()``.
        reads: what ``context.read()`` gives, for a stage that reads a cell.
        pools: units of the pools it takes permits of.

    Raises:
        AssertionError: a clause does not hold. The text says which, the smallest input found, expected, got, what to do.
        ValueError: there is no input.
        TypeError: the stage or the inputs cannot be copied.
        ModuleNotFoundError: the inputs are a strategy, and Hypothesis is not installed.
    """
    if isinstance(inputs, Sequence) and not inputs:
        raise ValueError("expected at least one input, got an empty list, with which every stage passes; name one")
    subject = subject_of(stage, outputs, per_input, idempotent, keep_order, raises, cancel_within_s, reads, pools or {})
    slow: list[Sequence[Any]] = []

    def check(values: Sequence[Any]) -> None:
        trial = _judge(subject, values)
        if max_block_s is not None and len(slow) < _TRIES and any(a.longest_s > max_block_s for a in trial.attempts):
            slow.append(values)

    try:
        if isinstance(inputs, Sequence):
            for values in [*([value] for value in inputs), list(inputs)]:
                check(values)
        else:
            _search(check, inputs, examples)
        for values in slow:
            _blocks(subject, values, max_block_s or 0.0)
    except Broken as fault:
        raise AssertionError(_report(subject, fault)) from fault.__cause__


def _judge(subject: Subject, values: Sequence[Any]) -> Trial:
    """Check every clause but that of time, which no single run can tell.

    Returns:
        The undisturbed run.
    """
    calm = subject.trial(values)
    no_task_left(calm)
    closed(subject, calm)
    returns(calm)
    raises(subject, calm)
    outputs(subject, calm)
    untouched(calm, "the stage ran")
    repeatable(subject, calm)
    independent(subject, calm)
    survives_cancels(subject, calm)
    restores(subject, values)
    return calm


def _search(check: Callable[[Sequence[Any]], None], inputs: "SearchStrategy[Any]", examples: int) -> None:
    """Try many lists, and shrink what breaks."""
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st
    from hypothesis.errors import Flaky

    # Repeatable, and silent: no data base of examples, no deadline, no printing; the report is ours.
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        report_multiple_bugs=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.data_too_large,
            HealthCheck.large_base_example,
            HealthCheck.filter_too_much,
        ],
    )
    @given(st.lists(inputs, min_size=1, max_size=4))
    def attempt(values: list[Any]) -> None:
        check(values)

    try:
        attempt()
    except Flaky as flaky:
        found = [error for error in getattr(flaky, "exceptions", ()) if isinstance(error, Broken)]
        if not found:
            raise
        fault = found[0]
        raise broken(
            fault.clause,
            fault.values,
            got=f"once, and not again: {fault.got}",
            expected=fault.expected,
            remedy=f"make it the same each time first; then {fault.remedy}",
            cause=fault.__cause__,
        ) from None


def _blocks(subject: Subject, values: Sequence[Any], max_block_s: float) -> None:
    runs = [subject.trial(values) for _ in range(_TRIES)]
    for index in range(len(values)):
        longest_s = min(run.first(index).longest_s for run in runs)
        if longest_s > max_block_s:
            raise broken(
                "blocks",
                [values[index]],
                got=f"it held the loop for {longest_s * 1e3:.0f} ms at a stretch, in each of {_TRIES} runs",
                expected=f"at most {max_block_s * 1e3:.0f} ms",
                remedy="place its node on Threads() and say max_block_s=None, or await what takes long",
            )


def _report(subject: Subject, fault: Broken) -> str:
    values = fault.values
    shown = repr(values[0]) if len(values) == 1 else repr(list(values))
    place = f"  ({subject.where})" if subject.where else ""
    return (
        f"stage {subject.name} breaks its contract: {fault.clause}{place}\n"
        f"     input{'s' if len(values) > 1 else ' '}    {shown if len(shown) <= 1000 else f'{shown[:997]}...'}\n"
        f"     expected  {fault.expected}\n     got       {fault.got}\n     to do     {fault.remedy}"
    )
