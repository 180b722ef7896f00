"""Every error the engine raises.

FlowError
├── BuildError          (ValueError)    the graph cannot run; all faults at once
├── StageFailed         (RuntimeError)  a stage failed an item and its policy is to end the run
├── BudgetExceeded      (RuntimeError)  a node failed more items, or dropped more groups, than it may
├── DeadlineExceeded    (TimeoutError)  one attempt took longer than its deadline: that item's failure
├── CancelledInside     (RuntimeError)  user code raised a cancellation nobody asked for: that item's failure
├── NotPortable         (TypeError)     a stage, a type or a value cannot go to another process
├── NotResumable        (TypeError)     something of a graph cannot be saved, so that a run could not go on from there
├── CannotResume        (ValueError)    what was saved is of another graph, or damaged
├── CommitFailed        (OSError)       the last commit of a run could not be made: what came after the one before is not saved
├── WorkerDied          (RuntimeError)  the process of an attempt ended under it: that item's failure
├── RaisedElsewhere     (RuntimeError)  stands for an exception that cannot leave the process it was raised in
├── Stalled             (TimeoutError)  nothing was committed for too long; carries the report
└── LedgerError         (RuntimeError)  items do not add up: a fault of the engine itself
"""

from collections.abc import Sequence
from dataclasses import dataclass


class FlowError(Exception):
    """Base of every error of the engine."""


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with a graph.

    Attributes:
        rule: number of the rule it breaks, such as ``B2``.
        path: where in the graph, such as ``rl.rewards.in``.
        expected: what would be right.
        got: what was found.
        where: the user's own ``file:line``, or empty.
        remedy: what to do.
    """

    rule: str
    path: str
    expected: str
    got: str
    where: str
    remedy: str

    def __str__(self) -> str:
        place = f"  ({self.where})" if self.where else ""
        return (
            f"[{self.rule}] {self.path}{place}\n     expected  {self.expected}\n     got       {self.got}\n"
            f"     to do     {self.remedy}"
        )


class BuildError(FlowError, ValueError):
    """Raised by ``Graph.build`` with every fault of the graph, root causes first."""

    def __init__(self, graph: str, faults: Sequence[Fault]) -> None:
        self.graph = graph
        self.faults = tuple(faults)
        count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
        super().__init__(f"graph '{graph}' cannot be built: {count}\n\n" + "\n\n".join(map(str, faults)))


class StageFailed(FlowError, RuntimeError):
    """Raised by a run when a stage failed an item for good. The cause is chained."""

    def __init__(self, node: str, path: tuple[int, ...], retry: int, attempt: int, cause: BaseException) -> None:
        self.node, self.path, self.retry, self.attempt = node, path, retry, attempt
        super().__init__(
            f"stage '{node}' failed at item {format_path(path)} (retry {retry}, attempt {attempt}): "
            f"{type(cause).__name__}: {cause}"
        )
        self.__cause__ = cause


def together(graph: str, errors: Sequence[BaseException]) -> BaseException:
    """What a run raises for errors of one moment: the first, or a group where several stages failed."""
    first = errors[0]
    if not isinstance(first, StageFailed):
        return first
    failed = [error for error in errors if isinstance(error, StageFailed)]
    of_each = list({error.node: error for error in reversed(failed)}.values())[::-1]
    if len(of_each) > 1:
        return ExceptionGroup(f"{len(of_each)} stages of graph '{graph}' failed in the same moment", of_each)
    if len(failed) > 1:
        first.add_note(f"and {len(failed) - 1} more of its attempts failed in the same moment")
    return first


class BudgetExceeded(FlowError, RuntimeError):
    """Raised by a run when too large a share of the items of a node came to nothing, as when the server behind it is down."""

    def __init__(self, node: str, got: str, expected: str, last: str, remedy: str) -> None:
        self.node = node
        super().__init__(f"node '{node}' {got}; expected {expected}. The last reason was: {last}. {remedy}.")


class DeadlineExceeded(FlowError, TimeoutError):
    """An attempt ran longer than the deadline of its node."""

    def __init__(self, node: str, deadline_s: float | None) -> None:
        limit = "half an hour; declare deadline_s where it may" if deadline_s is None else f"its deadline of {deadline_s:g} s"
        super().__init__(f"an attempt of '{node}' took longer than {limit}")


class CancelledInside(FlowError, RuntimeError):
    """User code let a cancellation escape that nobody had asked for, as some clients do on a timeout."""

    def __init__(self, node: str) -> None:
        super().__init__(f"an attempt of '{node}' ended in a cancellation that came from inside the stage")


class NotPortable(FlowError, TypeError):
    """A stage, a type or a value of a node that runs in processes cannot be carried to them."""

    def __init__(self, node: str, port: str, expected: str, got: str, where: str, remedy: str) -> None:
        self.node, self.port = node, port
        place = f" ({where})" if where else ""
        super().__init__(f"{node}.{port}{place}: expected {expected}, since '{node}' runs in processes; got {got}; {remedy}")


class NotResumable(FlowError, TypeError):
    """Something of a graph cannot be saved, so that a run of it can be started and not resumed."""

    def __init__(self, where: str, expected: str, got: str, remedy: str) -> None:
        self.where, self.expected, self.got, self.remedy = where, expected, got, remedy
        super().__init__(f"{where}: expected {expected}; got {got}; {remedy}")


class CannotResume(FlowError, ValueError):
    """What was saved does not fit the graph that is to go on from it, or is damaged."""


class CommitFailed(FlowError, OSError):
    """Raised by a run that came to its end, and could not be saved there. The cause is chained."""


class WorkerDied(FlowError, RuntimeError):
    """The process in which an attempt ran ended before the attempt did.

    Attributes:
        node: name of the node.
        how: how it ended, such as ``SIGKILL`` or ``exit code 3``.
        for_good: no process could be started in its place, so further items fare no better.
    """

    def __init__(self, node: str, how: str, remedy: str = "", *, for_good: bool = False) -> None:
        self.node, self.how, self.for_good = node, how, for_good
        remedy = remedy or "look for memory that ran out, a fault in native code, or a call of exit"
        super().__init__(f"expected the process of an attempt of '{node}' to outlive it, got: {how}; {remedy}")


class RaisedElsewhere(FlowError, RuntimeError):
    """Raised in place of an exception that could not be carried out of its process.

    Attributes:
        kind: name of its class.
    """

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        super().__init__(f"{kind}: {message}")


class Stalled(FlowError, TimeoutError):
    """Raised by a run in which nothing was committed for too long. ``str()`` is the stall report."""


class LedgerError(FlowError, RuntimeError):
    """Raised when the counts of a run do not add up."""


def format_path(path: tuple[int, ...]) -> str:
    """Write the identity of an item as it stands in reports: ``12.3``."""
    return ".".join(map(str, path)) or "-"
