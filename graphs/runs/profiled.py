"""Which steps of a program ``--options.profile`` takes a profile of, and whether there are such. Taking it is the trainer's."""

import re
from pathlib import Path

from graphs.program import Phase, Program
from graphs.runs.progress import Start
from stages.profile import Profile

FOLDER = "profile"
"""Of the files, in a run's folder; TensorBoard's profile page and xprof read them."""
_WRITTEN = re.compile(r"(?:steps=)?(\d+)(?::(\d+))?")


def profiled_phase(program: Program) -> Phase | None:
    """The phase whose steps are meant: the main one, where it trains."""
    return next((phase for phase in program.phases if phase.main and phase.training is not None), None)


def steps_of(written: str) -> tuple[int, int]:
    """First and last step of ``10:12``, ``steps=10:12`` or ``10``.

    Raises:
        ValueError: it is nothing of the kind.
    """
    found = _WRITTEN.fullmatch(written)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= first <= last:
        raise ValueError(
            f"expected steps of the trainer from 1 on, as 10:12 or 10, got '{written}', in --options.profile; "
            "write the first and the last one"
        )
    return first, last


def profile_of(written: str | None, program: Program, folder: Path, start: Start) -> Profile | None:
    """The profile that a run is to take.

    Args:
        written: ``--options.profile``; ``None`` for none.
        program: what is run.
        folder: of the run.
        start: what it goes on from.

    Raises:
        ValueError: there are no such steps, or a profile of this run is there already.
    """
    if written is None:
        return None
    first, last = steps_of(written)
    if (problem := _problem(first, last, program, folder / FOLDER, start)) is not None:
        raise ValueError(f"{problem}, in --options.profile")
    return Profile(folder / FOLDER, first, last)


def _problem(first: int, last: int, program: Program, folder: Path, start: Start) -> str | None:
    phase = profiled_phase(program)
    if phase is None:
        return f"expected a program that trains, got {program.name}, which has no steps of a trainer; leave it out"
    if phase.total is not None and last > phase.total:
        return f"expected steps from 1 to {phase.total}, got {first}:{last}; choose some that there are"
    names = [each.name for each in program.phases]
    done = start.phase - names.index(phase.name)
    over = 0 if done < 0 or start.progress is None else start.progress.step if done == 0 else phase.total or last
    if first <= over:
        return f"expected steps after {over}, which the run has taken, got {first}:{last}; choose later ones"
    if folder.exists() and any(folder.iterdir()):
        return f"expected no profile in {folder} yet, got one that was taken before; move it away"
    return None
