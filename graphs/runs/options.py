"""Options of ``run`` and ``resume``: where a run goes, how it is saved, how it stops. What it does is its settings."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from graphs.runs.profiled import steps_of


@dataclass(frozen=True)
class SavingOptions:
    """How a run is saved, and how it stops."""

    checkpoint_every: int | None = 5
    """Steps of a trainer from one commit to the next; None makes none, and the run cannot be resumed. A kill costs at most so
    many steps of training."""
    keep: int = 2
    """Latest commits that are kept."""
    record: bool = False
    """Keep the whole journal, for headrace replay: every episode, and what each step took."""
    grace_s: float = 20.0
    """Seconds from SIGTERM to the end: half of them for what is under way, the rest for the commit."""
    profile: str | None = None
    """Steps of the trainer to take a profile of with JAX's profiler, such as 10:12, into the folder profile of the run; None
    takes none. It slows these steps down."""
    samples: int = 2
    """Episodes of each step that are kept token by token, for the report; 0 for none."""
    accept: tuple[str, ...] = ()
    """Settings that differ from those the run was saved with, and would be refused, such as rl.group-size."""

    def check(self) -> None:
        """Refuse what is out of range.

        Raises:
            ValueError: naming it.
        """
        bounds = (
            ("checkpoint-every", self.checkpoint_every, 1), ("keep", self.keep, 1), ("grace-s", self.grace_s, 0),
            ("samples", self.samples, 0),
        )  # fmt: skip
        for name, value, least in bounds:
            if value is not None and value < least:
                raise ValueError(f"expected at least {least}, got {value}, in --options.{name}; raise it")
        if self.profile is not None:
            steps_of(self.profile)

    def kept(self) -> dict[str, Any]:
        """Those that are kept with a run; what is accepted or profiled is of one start of it."""
        return {
            "checkpoint_every": self.checkpoint_every, "keep": self.keep, "record": self.record, "grace_s": self.grace_s,
            "samples": self.samples,
        }  # fmt: skip


@dataclass(frozen=True)
class Options(SavingOptions):
    """Where a run goes, how it is saved, and how it stops."""

    name: str | None = None
    """Folder of the run under ``folder``; None makes one of the program's name and the time."""
    folder: Path = Path("runs")
    """Folder of all runs."""
    resume: Literal["never", "auto"] = "never"
    """auto: go on with the run of this name where there is one, else begin it; for schedulers that start a job again."""
