"""A run that its own settings end: a gate that stops, a bad update with ``on_bad_step="stop"``. Not a fault of any code."""


class StopRun(RuntimeError):
    """The settings say that the run ends here. Its text is for whoever reads the run's last line; no traceback adds to it."""


def stop_in(error: BaseException) -> StopRun | None:
    """The stop that an error of a run stands for; ``None`` for an error that is one."""
    return next((each for each in (error, error.__cause__) if isinstance(each, StopRun)), None)
