"""``headrace check``: what can be proved of a program before it runs, on the devices here or on some that are declared."""

import asyncio

from flax import nnx

from graphs.commands.command_line import Work, read_program, tell, warn
from graphs.memory import Budget, check_memory, device_budget
from graphs.placing import placed
from graphs.program import Program
from graphs.runs.execute import prove
from graphs.topology import declared
from stages.models.lora import trained
from stages.rollout.http.engine import HttpEngine
from stages.rollout.verify import verify_sync


def check(arguments: list[str]) -> Work | None:
    """Prove a program, and give what is left to do where the engine's weights are to be proved too.

    Raises:
        BuildError, ValueError, LookupError: what the user can mend.
    """
    wanted, topology = declared(arguments)
    wanted, verifies = [argument for argument in wanted if argument != "--verify-sync"], "--verify-sync" in wanted
    if topology is not None and verifies:
        raise ValueError(
            "expected one of --topology and --verify-sync, which needs the devices themselves; got both; leave one"
        )
    program, _ = read_program("check", wanted)
    plans = prove(program, None)
    if topology is not None and program.parts is not None:
        tell(f"devices: {placed(program.parts.model, program.parts.engine.mesh, program.parts.reference_mesh)}")
    _tell_memory(program, device_budget() if topology is None else topology.budget)
    warn(program, plans, () if topology is None else topology.warnings)
    where = "" if topology is None else f" on {topology.name}, {topology.num_devices} devices"
    tell(f"{program.name}: {len(plans)} graph{'s' if len(plans) != 1 else ''} can run{where}")
    return _verifying(program) if verifies else None


def _verifying(program: Program) -> Work:
    """Load the model, open the engine, and compare what the engine gets with what it was given."""
    parts = program.parts
    if parts is None:
        raise ValueError(f"expected a program with a model and an engine, got {program.name}; leave --verify-sync out")
    engine = parts.engine
    if isinstance(engine, HttpEngine):
        raise ValueError("expected an engine in this process with --verify-sync, got servers; leave the flag out")

    async def verify() -> None:
        parts.load()
        async with engine:
            for kind in dict.fromkeys((nnx.Param, trained(parts.model))):
                report = await verify_sync(engine, nnx.state(parts.model, kind))
                size = f"{report.num_leaves} arrays, {report.num_bytes / 1e6:.1f} MB"
                if report.differing:
                    raise RuntimeError(
                        f"expected the engine to hold what it was given, got other bits in {', '.join(report.differing)} "
                        f"of {size}; do not train with this engine"
                    )
                tell(f"{program.name}: the engine holds what it was given to the bit, {size}")

    return lambda: asyncio.run(verify())


def _tell_memory(program: Program, budget: Budget) -> None:
    """Refuse what cannot fit; what might is compiled, which takes a while, and told."""
    check_memory(program, budget)
    if any(phase.training is not None for phase in program.phases):
        tell("compiling a gradient, to know its memory")
    if table := check_memory(program, budget, compiled=True):
        tell(f"memory of each device, {budget.device}:\n{table}")
