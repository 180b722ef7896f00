"""A program that is killed again and again, and goes on from what it has on the disk, in virtual time.

What is on the disk when it dies is copied, and only the copy is seen by the life that follows: whatever the dying one still
does, as closing its stages, is as if it had not been. Each life begins with fresh objects.
"""

import asyncio
import shutil
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .._graph import Graph
from .._run import Run
from .._summary import Summary
from .._watcher import Watcher
from ..saving._commits import Commits
from ..saving._declared import Resumable
from ..saving._journal import Journal
from ..saving._points import listeners
from ..saving._saving import Saving
from ._loop import VirtualLoop
from ._simulate import leftovers, played
from ._threads import PlayedExecutor


class Killed(Exception):
    """Stands for the end of a process that is killed: nothing it does after this counts."""


@dataclass(frozen=True)
class Kill:
    """How a life ends.

    Attributes:
        at_s: virtual seconds after which it is killed; ``None``: at a point.
        point: name of a point of ``flow/saving/_points.py``, such as ``commit.renamed``; empty for every one.
        nth: at which pass of it, from 1.
        suspend: it is not killed but suspended, at ``at_s``, and may still save itself.
    """

    at_s: float | None = None
    point: str = ""
    nth: int = 1
    suspend: bool = False

    def strikes(self, passed: Sequence[str]) -> bool:
        """Whether it is due at the last of the points that were passed."""
        mine = [point for point in passed if self.point in ("", point)]
        return self.at_s is None and len(mine) == self.nth and self.point in ("", passed[-1])


@dataclass(frozen=True)
class Life:
    """One life of a program: a graph of fresh objects, and what stands beside it.

    Attributes:
        graph: what is run.
        beside: as for ``Saving``.
        watchers: as for ``Run``.
    """

    graph: Graph
    beside: Mapping[str, Resumable] = field(default_factory=dict[str, Resumable])
    watchers: Sequence[Watcher] = ()


@dataclass(frozen=True)
class Lived:
    """How a life went.

    Attributes:
        summary: of its run; ``None`` where it was killed.
        run: the run itself.
        points: names of the points that it passed.
        seconds: virtual seconds it took.
        folder: what it had on the disk: its ``checkpoints``, and its ``journal`` where it kept one.
    """

    summary: Summary | None
    run: Run
    points: tuple[str, ...]
    seconds: float
    folder: Path


def killed(
    begin: Callable[[], Life],
    folder: Path,
    kills: Sequence[Kill],
    *,
    seed: int = 0,
    every: int = 1,
    keep: int | None = 2,
    journal: bool = False,
    disturb: float = 0.0,
) -> list[Lived]:
    """Run a program that dies at each of these, one after the other, and comes to its end at last.

    Args:
        begin: makes the objects of one life. What a graph has in common over lives must be in their states.
        folder: an empty one, for what each life has on the disk.
        kills: how each life but the last ends. Where one comes to its end before, no other follows.
        seed: of the order of tasks, another one for each life.
        every: as for ``Commits``.
        keep: as for ``Commits``.
        journal: whether a journal is kept.
        disturb: share of the due steps of workers that are cancelled, and of tasks that come late, as for ``simulate``.

    Returns:
        The lives. The last one has a summary whose status is ``completed``.

    Raises:
        FlowError: a run's own error, with a note that says in which life.
        AssertionError: the counts of a life did not add up when it died, or something was left over at the end.
    """
    lives: list[Lived] = []
    for number, kill in enumerate([*kills, None]):
        here = folder / f"life{number}"
        if lives and not here.exists():
            shutil.copytree(lives[-1].folder, here)
        try:
            disk = _Disk(here, folder / f"life{number + 1}", every, keep, journal)
            lives.append(_live(begin(), disk, kill, VirtualLoop(seed + number, disturb, late=disturb, deadline_s=1e6)))
        except Exception as error:
            error.add_note(f"in life {number} of {[*kills[:number]]}, seed {seed}, every {every}")
            raise
        summary = lives[-1].summary
        if summary is not None and summary.status != "suspended":
            break
    return lives


@dataclass(frozen=True)
class _Disk:
    """Where a life is, where the next will be, and what is kept there."""

    here: Path
    after: Path
    every: int
    keep: int | None
    journal: bool


def _live(life: Life, disk: _Disk, kill: Kill | None, loop: VirtualLoop) -> Lived:
    points, dead = list[str](), list[Exception]()
    with ExitStack() as stack:
        commits = stack.enter_context(Commits(disk.here / "checkpoints", every=disk.every, keep=disk.keep))
        resume = commits.latest()
        journal = Journal(disk.here / "journal", after=0 if resume is None else resume.number) if disk.journal else None
        if journal is not None:
            stack.enter_context(journal)
        saving = Saving(commits, beside=life.beside, resume=resume, journal=journal)
        run = Run(played(life.graph.build(quiet=True)), watchers=life.watchers, stall_s=None, saving=saving)
        run.threads = PlayedExecutor

        def die() -> None:
            if not dead:
                dead.append(Killed())
                shutil.copytree(disk.here, disk.after)
                faults = run.state.faults()
                assert not faults, f"expected counts that add up when it is killed, got {'; '.join(faults)}"
                run.abort(dead[0])

        def passed(point: str) -> None:
            points.append(point)
            if kill is not None and kill.strikes(points):
                die()
            if dead:
                raise dead[0]

        async def main() -> Summary:
            if kill is not None and kill.at_s is not None:
                asyncio.get_running_loop().call_later(kill.at_s, run.suspend if kill.suspend else die)
            return await run.finish()

        summary: Summary | None = None
        with _listening(passed), asyncio.Runner(loop_factory=lambda: loop) as runner:
            try:
                summary = runner.run(main())
            except Exception:
                if not dead:
                    raise
        if summary is not None and not dead and summary.status != "suspended":
            left = leftovers(run, summary)
            assert not left, f"expected nothing left over, got {'; '.join(left)}"
    return Lived(None if dead else summary, run, tuple(points), loop.time(), disk.here)


@contextmanager
def _listening(listener: Callable[[str], None]) -> Generator[None]:
    listeners.append(listener)
    try:
        yield
    finally:
        listeners.remove(listener)
