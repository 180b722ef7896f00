"""Options of ``run`` and ``resume``: where a run goes, how it is saved, how it stops. What it does is its settings."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from graphs.alerts.hooks import check_hooks
from graphs.alerts.rules import DEFAULTS, Rule, read_rules
from graphs.loggers.chosen import LoggerName, check_loggers
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
    trace_bytes: int | None = 512_000_000
    """Size of all trace files of the run together, in bytes. A file has a quarter of it, 128 MB at most; of a longer run the
    first and the latest are kept. None writes no trace."""
    profile: str | None = None
    """Steps of the trainer to take a profile of with JAX's profiler, such as 10:12, into the folder profile of the run; None
    takes none. It slows these steps down."""
    samples: int = 2
    """Episodes of each step that are kept token by token, for the report; 0 for none."""
    health_s: float = 10.0
    """Seconds from one row of health in metrics.jsonl to the next: rates, groups that wait, memory, lag of the loop."""
    alerts: tuple[str, ...] | None = None
    """Rules over metrics, such as 'lag_mean>2', 'truncated_share>0.3 for 3' (rows in a row) or 'ready_groups rising for 10'; an
    empty list for no rules; None for those of docs/watching.md."""
    alert_command: str | None = None
    """Command that gets each alert as JSON on its input, and is killed after 10 s; None for none."""
    alert_webhook: str | None = None
    """Address that each alert is posted to as JSON; None for none. It is not kept with the run, since it may hold a key."""
    loggers: tuple[LoggerName, ...] = ()
    """What is told all metrics beside metrics.jsonl, each an extra of headrace."""
    accept: tuple[str, ...] = ()
    """Settings that differ from those the run was saved with, and would be refused, such as rl.group-size."""

    def check(self) -> None:
        """Refuse what is out of range.

        Raises:
            ValueError: naming it.
        """
        bounds = (
            ("checkpoint-every", self.checkpoint_every, 1), ("keep", self.keep, 1), ("grace-s", self.grace_s, 0),
            ("trace-bytes", self.trace_bytes, 1_000_000), ("samples", self.samples, 0), ("health-s", self.health_s, 0.05),
        )  # fmt: skip
        for name, value, least in bounds:
            if value is not None and value < least:
                raise ValueError(f"expected at least {least}, got {value}, in --options.{name}; raise it")
        if self.profile is not None:
            steps_of(self.profile)
        check_hooks(self.alert_command, self.alert_webhook)
        check_loggers(self.loggers)

    def rules(self, *, own: bool) -> tuple[Rule, ...]:
        """What is watched.

        Args:
            own: whether stages of the user's own may report metrics that are in no list.

        Raises:
            ValueError: naming all rules that cannot be read.
        """
        return read_rules(DEFAULTS if self.alerts is None else self.alerts, own=own)

    def kept(self) -> dict[str, Any]:
        """Those that are kept with a run; what is accepted or profiled is of one start of it."""
        left_out = ("accept", "profile", "alert_webhook")
        return {field.name: getattr(self, field.name) for field in fields(SavingOptions) if field.name not in left_out}


@dataclass(frozen=True)
class Options(SavingOptions):
    """Where a run goes, how it is saved, and how it stops."""

    name: str | None = None
    """Folder of the run under ``folder``; None makes one of the program's name and the time."""
    folder: Path = Path("runs")
    """Folder of all runs."""
    resume: Literal["never", "auto"] = "never"
    """auto: go on with the run of this name where there is one, else begin it; for schedulers that start a job again."""
