"""Running a whole graph in virtual time, disturbed from a seed, and looking afterwards whether anything is left over.

The results are the caller's to judge; what holds for every graph is checked here: the counts add up, every item has ended, no
task is left, every pool is full again and no ticket is out.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .._graph import Graph
from .._limits import Processes, Threads
from .._plan import Plan
from .._run import Run
from .._summary import Summary
from .._watcher import Tally, Watcher
from ..trace import Recorder
from ._loop import NothingMovesError, VirtualLoop
from ._threads import PlayedExecutor


@dataclass(frozen=True)
class Simulated:
    """A run that was simulated.

    Attributes:
        seed: of the schedule.
        summary: what the run left behind.
        run: the run itself, to look into its state.
        kills: steps of workers that were cancelled.
        left: kills after which the worker did not come back.
        seconds: virtual seconds from the first event to the last.
    """

    seed: int
    summary: Summary
    run: Run
    kills: int
    left: int
    seconds: float


def simulate(
    graph: Graph | Plan,
    seed: int = 0,
    kill: float = 0.0,
    *,
    leave: float = 0.0,
    late: float = 0.0,
    slow: float = 0.0,
    deadline_s: float = 100_000.0,
    stall_s: float | None = None,
    recorder: Recorder | None = None,
    watchers: Sequence[Watcher] = (),
    tally: Tally | None = None,
) -> Simulated:
    """Run a graph to its end in virtual time, and check that nothing is left over.

    The same graph with the same arguments runs the same way each time. Nodes on threads run on the loop, a random time later,
    and so do nodes in processes: nothing crosses, and their workers share the stage.

    Args:
        graph: a graph, or a plan already built. Its stages should await nothing but timers and each other.
        seed: of the order of tasks and of every disturbance.
        kill: share of the due steps of workers that are cancelled instead. A worker that was killed is started again.
        leave: share of the kills after which it is not, as long as another worker of the node is left.
        late: share of the due steps of tasks that come a few passes of the loop late.
        slow: share of the due steps of workers that come up to a second late.
        deadline_s: virtual seconds after which the run is given up.
        stall_s: as for ``Run``. ``None``: no watch, which is fastest; a graph that cannot move is an error of the loop then.
        recorder: as for ``Run``.
        watchers: as for ``Run``.
        tally: as for ``Run``.

    Raises:
        FlowError: the run's own error, with a note that says how to repeat it.
        TimeoutError: it did not end in time.
        RuntimeError: every task waits for ever.
        AssertionError: something is left over: a fault of the engine, or a stage that leaves tasks behind.
    """
    plan = played(graph.build(quiet=True) if isinstance(graph, Graph) else graph)
    loop = VirtualLoop(seed, kill, leave=leave, late=late, slow=slow, deadline_s=deadline_s)
    run = Run(plan, recorder=recorder, watchers=watchers, stall_s=stall_s, tally=tally)
    run.restarts = lambda task: not loop.leaves(task)
    run.threads = PlayedExecutor
    settings = {"kill": kill, "leave": leave, "late": late, "slow": slow, "deadline_s": deadline_s, "stall_s": stall_s}
    told = ", ".join([f"seed={seed}", *(f"{name}={value!r}" for name, value in settings.items() if value != _DEFAULTS[name])])
    repeat = f"graph '{plan.spec.name}'; to repeat it: simulate(graph, {told})"
    try:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            summary, tasks = runner.run(_finish(run))
    except Exception as error:
        if isinstance(error, NothingMovesError):
            error.add_note(f"items are left in {dict(run.state.leftovers())}; stall_s=60 tells who waits for whom")
        error.add_note(repeat)
        raise
    left_over = leftovers(run, summary, tasks)
    assert not left_over, f"expected nothing left over, got {'; '.join(left_over)} ({repeat})"
    return Simulated(seed, summary, run, loop.kills, loop.left, loop.time())


_DEFAULTS = {"kill": 0.0, "leave": 0.0, "late": 0.0, "slow": 0.0, "deadline_s": 100_000.0, "stall_s": None}


def played(plan: Plan) -> Plan:
    """Give a plan without processes, in which no time can be virtual: what would be in one is on played threads."""
    nodes = {
        name: replace(node, placement=Threads()) if isinstance(node.placement, Processes) else node
        for name, node in plan.spec.nodes.items()
    }
    return replace(plan, spec=replace(plan.spec, nodes=nodes))


async def _finish(run: Run) -> tuple[Summary, list[str]]:
    try:
        summary = await run.finish()
    except Exception as error:
        for name in _others():
            error.add_note(f"and the task '{name}' was left over")
        raise
    return summary, _others()


def _others() -> list[str]:
    """Names of the tasks beside this one."""
    return [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]


def leftovers(run: Run, summary: Summary, tasks: Sequence[str] = ()) -> list[str]:
    """Say what a run that ended has left over, as text; empty when all is in order.

    Args:
        run: the run.
        summary: its summary.
        tasks: names of the tasks that were there when it had ended.
    """
    state = run.state
    found = [*summary.faults, *(f"{count} items in {place}" for place, count in summary.leftovers.items())]
    found += [f"the task '{name}'" for name in tasks]
    free, sizes = state.pools.free, state.pools.sizes
    found += [f"{sizes[pool] - free[pool]} units of pool '{pool}' out" for pool in sizes if free[pool] != sizes[pool]]
    for name, node in state.nodes.items():
        found += [f"turns of {name} out: {sorted(node.turns)}"] if node.turns else []
        if summary.status == "completed" and node.spec.kind == "repeat" and node.admission is not None and node.admission.held:
            found.append(f"{node.admission.held} tickets of {name} out")
    return found
