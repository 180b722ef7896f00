"""Where an alert is sent beside the run's own files: to a command, to a webhook. On a thread each: nothing waits for it.

Neither is tried twice: an alert is also a row of metrics, and who must not miss one reads those.
"""

import contextlib
import os
import queue
import shlex
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial
from shutil import which
from typing import Any

from graphs.runs.json_rows import encode

WITHIN_S = 10.0
"""Time that a command or a webhook has for one alert."""
_MOST = 64
"""Alerts that wait to be sent to one hook; more are not sent, which is a failure."""


Alert = Mapping[str, Any]
OnFailure = Callable[[str, Alert], None]


class Hooks:
    """Sends alerts. A context manager, which waits for what is on its way, and not longer than one of them may take.

    Args:
        command: that gets each alert as JSON on its input, split as a shell would; ``None`` for none.
        webhook: address that each is posted to as JSON; ``None`` for none.
        on_failure: told, on any thread, of what could not be delivered, and of which alert that was.
        within_s: time for one; a command is killed after it.
    """

    def __init__(self, command: str | None, webhook: str | None, on_failure: OnFailure, within_s: float = WITHIN_S) -> None:
        self._within_s = within_s
        self._lines: list[_Line] = []
        if command is not None:
            self._lines.append(_Line("the alert command", partial(_run, command, within_s), on_failure))
        if webhook is not None:
            self._lines.append(_Line("the alert webhook", partial(_post, webhook, within_s), on_failure))

    def __enter__(self) -> "Hooks":
        for line in self._lines:
            line.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        for line in self._lines:
            line.end()
        until = time.monotonic() + self._within_s + 1.0
        for line in self._lines:
            if line.thread.ident is not None:
                line.thread.join(max(0.0, until - time.monotonic()))

    def send(self, alert: Alert) -> None:
        """Send an alert, to each hook at once or when those before it are sent there."""
        for line in self._lines:
            line.send(alert)


class _Line:
    """The way to one hook, with a thread of its own: one that hangs holds up no other.

    Args:
        name: of the hook.
        deliver: takes an alert there; what it gives is what went wrong.
        on_failure: see ``Hooks``.
    """

    def __init__(self, name: str, deliver: Callable[[bytes], str | None], on_failure: OnFailure) -> None:
        self._name, self._deliver, self._on_failure = name, deliver, on_failure
        self._queue: queue.Queue[tuple[bytes, Alert] | None] = queue.Queue(_MOST)
        self.thread = threading.Thread(target=self._work, name=name, daemon=True)

    def send(self, alert: Alert) -> None:
        if not self.thread.is_alive():
            return
        try:
            self._queue.put_nowait((encode(alert), alert))
        except queue.Full:
            self._on_failure(f"{self._name} was not sent an alert, since {_MOST} others wait", alert)

    def end(self) -> None:
        """End after what waits."""
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(None)

    def _work(self) -> None:
        while (sent := self._queue.get()) is not None:
            content, alert = sent
            fault = self._deliver(content)
            if fault is not None:
                self._on_failure(f"{self._name} {fault}", alert)


def _run(command: str, within_s: float, content: bytes) -> str | None:
    try:
        process = subprocess.Popen(
            shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return f"could not be started: {error}"
    try:
        _, told = process.communicate(content, timeout=within_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it has started too
        process.communicate()
        return f"was killed, since it took more than {within_s:g} s"
    if process.returncode:
        last = told.decode("utf-8", "replace").strip().splitlines()[-1:]
        return f"failed with status {process.returncode}: {''.join(last)[:200]}"
    return None


def _post(address: str, within_s: float, content: bytes) -> str | None:
    request = urllib.request.Request(address, content, {"Content-Type": "application/json"}, method="POST")
    began = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=within_s) as answer:
            answer.read(1)
    except (OSError, ValueError) as error:
        # Its address may hold a key: only the host is told.
        host = urllib.parse.urlsplit(address).hostname
        return f"of {host} failed after {time.monotonic() - began:.1f} s: {_told(error)}"
    return None


def _told(error: Exception) -> str:
    return f"status {error.code}" if isinstance(error, urllib.error.HTTPError) else f"{getattr(error, 'reason', error)}"


def check_hooks(command: str | None, webhook: str | None) -> None:
    """Refuse a command that is not there, and an address that cannot be posted to.

    Raises:
        ValueError: naming it.
    """
    if command is not None:
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise ValueError(
                f"expected a command, got '{command}' ({error}), in --options.alert-command; close its quotes"
            ) from error
        if not words or which(words[0]) is None:
            raise ValueError(
                f"expected a command that is there, got '{words[0] if words else ''}', in --options.alert-command; give the "
                "path of a program that can be executed"
            )
    if webhook is not None:
        parts = urllib.parse.urlsplit(webhook)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(
                f"expected an address that begins with http:// or https://, got one of '{parts.scheme or 'nothing'}', in "
                "--options.alert-webhook; give the whole address"
            )
