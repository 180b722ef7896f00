"""Where alerts are sent: real commands, and a server on loopback. What fails there fails nothing here."""

import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from graphs.alerts.hooks import Hooks, check_hooks

ALERT = {"phase": "rl", "alert": "loss not-finite", "state": "raised", "value": float("nan")}


class Failures:
    """What could not be delivered, and of which alerts."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.alerts: list[Mapping[str, Any]] = []

    def hear(self, text: str, alert: Mapping[str, Any]) -> None:
        self.texts.append(text)
        self.alerts.append(alert)


def command(source: str) -> str:
    return f'"{sys.executable}" -S -c "{source}"'


@pytest.fixture
def posted() -> Iterator[tuple[str, list[bytes], list[int]]]:
    """Address of a server, what was posted to it, and the statuses it answers with from now on."""
    bodies: list[bytes] = []
    statuses: list[int] = [200]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(statuses[0])
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/hook?key=secret", bodies, statuses
        server.shutdown()
        thread.join()


def test_a_command_gets_the_alert_as_json_on_its_input(tmp_path: Path) -> None:
    """S43: with what is not a number as its name."""
    failures = Failures()
    file = tmp_path / "alert"
    with Hooks(command(f"import sys; open('{file}', 'w').write(sys.stdin.read())"), None, failures.hear) as hooks:
        hooks.send(ALERT)
    assert json.loads(file.read_text()) == {**ALERT, "value": "nan"}
    assert failures.texts == []


def test_a_webhook_gets_it_posted_and_one_that_refuses_is_told_without_its_key(
    posted: tuple[str, list[bytes], list[int]],
) -> None:
    address, bodies, statuses = posted
    failures = Failures()
    with Hooks(None, address, failures.hear) as hooks:
        hooks.send(ALERT)
        while not bodies:
            time.sleep(0.001)
        statuses[0] = 503
        hooks.send(ALERT)
    assert [json.loads(body)["alert"] for body in bodies] == ["loss not-finite"] * 2
    assert len(failures.texts) == 1
    assert "the alert webhook of 127.0.0.1 failed after" in failures.texts[0]
    assert "status 503" in failures.texts[0]
    assert "secret" not in failures.texts[0]


@pytest.mark.slow
def test_a_command_that_takes_too_long_is_killed_and_one_that_fails_is_told() -> None:
    failures = Failures()
    with Hooks(command("import time; time.sleep(60)"), None, failures.hear, within_s=0.2) as hooks:
        hooks.send(ALERT)
    with Hooks(command("import sys; sys.exit('no such room')"), None, failures.hear) as hooks:
        hooks.send(ALERT)
    assert failures.texts == [
        "the alert command was killed, since it took more than 0.2 s",
        "the alert command failed with status 1: no such room",
    ]


@pytest.mark.slow
def test_a_command_that_hangs_holds_up_no_webhook(posted: tuple[str, list[bytes], list[int]]) -> None:
    """All three are posted while the command still hangs on the first, and only the command is told of, with that alert."""
    address, bodies, _ = posted
    failures = Failures()
    alerts = [{**ALERT, "phase": phase} for phase in ("warm_start", "rl", "rl")]
    with Hooks(command("import time; time.sleep(60)"), address, failures.hear, within_s=2.0) as hooks:
        for alert in alerts:
            hooks.send(alert)
        while len(bodies) < 3:
            time.sleep(0.001)
        assert failures.texts == []
    assert [json.loads(body)["phase"] for body in bodies] == ["warm_start", "rl", "rl"]
    assert failures.texts[0] == "the alert command was killed, since it took more than 2 s"
    assert failures.alerts[0] == alerts[0]


@pytest.mark.slow
def test_sending_never_waits_and_what_finds_no_room_is_told() -> None:
    failures = Failures()
    hooks = Hooks(command("import time; time.sleep(60)"), None, failures.hear, within_s=0.2)
    with hooks:
        began = time.monotonic()
        for _ in range(80):
            hooks.send(ALERT)
        took_s = time.monotonic() - began
        while not failures.texts:
            time.sleep(0.001)
        assert took_s < 0.2
        assert "the alert command was not sent an alert, since 64 others wait" in failures.texts


def test_without_a_hook_nothing_is_started() -> None:
    before = threading.active_count()
    with Hooks(None, None, pytest.fail) as hooks:
        hooks.send(ALERT)
        assert threading.active_count() == before


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            ("no-such-program --to me", None),
            "expected a command that is there, got 'no-such-program', in --options.alert-command",
        ),
        (('"open', None), "close its quotes"),
        (("", None), "expected a command that is there, got ''"),
        ((None, "localhost:80"), "expected an address that begins with http:// or https://, got one of 'localhost'"),
        ((None, "ftp://key@host"), "got one of 'ftp', in --options.alert-webhook"),
    ],
)
def test_what_could_never_work_is_refused_before_work_starts(given: tuple[str | None, str | None], told: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        check_hooks(*given)
    assert told in str(caught.value)
