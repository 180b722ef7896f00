"""Where an alert is sent beside the run's own files: to a command, to a webhook. On a thread, so that nothing waits for it.

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
from shutil import which
from typing import Any

from graphs.runs.json_rows import encode

WITHIN_S = 10.0
"""Time that a command or a webhook has for one alert."""
_MOST = 64
"""Alerts that wait to be sent; more are not sent, which is a failure."""


class Hooks:
    """Sends alerts. A context manager, which waits for what is on its way, and not longer than one of them may take.

    Args:
        command: that gets each alert as JSON on its input, split as a shell would; ``None`` for none.
        webhook: address that each is posted to as JSON; ``None`` for none.
        on_failure: told, on the sending thread, of what could not be delivered.
        within_s: time for one; a command is killed after it.
    """

    def __init__(
        self, command: str | None, webhook: str | None, on_failure: Callable[[str], None], within_s: float = WITHIN_S
    ) -> None:
        self._command, self._webhook = command, webhook
        self._on_failure, self._within_s = on_failure, within_s
        self._queue: queue.Queue[bytes | None] = queue.Queue(_MOST)
        self._thread = threading.Thread(target=self._work, name="alerts", daemon=True)

    def __enter__(self) -> "Hooks":
        if self._command is not None or self._webhook is not None:
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._thread.is_alive():
            with contextlib.suppress(queue.Full):
                self._queue.put_nowait(None)
            self._thread.join(self._within_s + 1.0)

    def send(self, alert: Mapping[str, Any]) -> None:
        """Send an alert, at once or when those before it are sent."""
        if not self._thread.is_alive():
            return
        try:
            self._queue.put_nowait(encode(alert))
        except queue.Full:
            self._on_failure(f"an alert was not sent, since {_MOST} others wait")

    def _work(self) -> None:
        while (content := self._queue.get()) is not None:
            if self._command is not None:
                self._run(self._command, content)
            if self._webhook is not None:
                self._post(self._webhook, content)

    def _run(self, command: str, content: bytes) -> None:
        try:
            process = subprocess.Popen(
                shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self._on_failure(f"the alert command could not be started: {error}")
            return
        try:
            _, told = process.communicate(content, timeout=self._within_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what it has started too
            process.communicate()
            self._on_failure(f"the alert command was killed, since it took more than {self._within_s:g} s")
            return
        if process.returncode:
            last = told.decode("utf-8", "replace").strip().splitlines()[-1:]
            self._on_failure(f"the alert command failed with status {process.returncode}: {''.join(last)[:200]}")

    def _post(self, address: str, content: bytes) -> None:
        request = urllib.request.Request(address, content, {"Content-Type": "application/json"}, method="POST")
        began = time.monotonic()
        try:
            with urllib.request.urlopen(request, timeout=self._within_s) as answer:
                answer.read(1)
        except (OSError, ValueError) as error:
            # Its address may hold a key: only the host is told.
            host = urllib.parse.urlsplit(address).hostname
            self._on_failure(f"the alert webhook of {host} failed after {time.monotonic() - began:.1f} s: {_told(error)}")


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
