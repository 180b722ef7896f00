"""Reports are served to this machine alone, and what is new is told once."""

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from graphs.report.server import ReportServer

Left = Callable[..., Path]
MakeRow = Callable[..., dict[str, Any]]


class Asker:
    """Asks a server."""

    def __init__(self, server: ReportServer) -> None:
        self._server = server

    def __call__(self, path: str, **headers: str) -> tuple[int, str, dict[str, str]]:
        line = http.client.HTTPConnection("127.0.0.1", self._server.server_port, timeout=10)
        try:
            line.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
            answer = line.getresponse()
            return answer.status, answer.read().decode(), dict(answer.getheaders())
        finally:
            line.close()


@pytest.fixture
def serve() -> Iterator[Callable[[Path], Asker]]:
    with ExitStack() as stack:

        def begin(folder: Path) -> Asker:
            server = stack.enter_context(ReportServer(folder, 0))
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            return Asker(server)

        yield begin


def test_a_run_is_served_and_what_is_new_is_told_once(serve: Callable[[Path], Asker], left: Left, row: MakeRow) -> None:
    folder = left([row(1)])
    ask = serve(folder)
    status, text, headers = ask("/")
    assert (status, 'data-refresh="3.0"' in text, "Content-Length" in headers) == (200, True, True)
    status, text, headers = ask("/newest")
    assert (status, "<html" in text, "Reward" in text) == (200, False, True)
    assert ask("/newest", If_None_Match=headers["ETag"])[0] == 304
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(row(2, reward_mean=0.75)) + "\n")
    status, text, _ = ask("/newest", If_None_Match=headers["ETag"])
    assert (status, "0.75" in text) == (200, True)


def test_a_folder_of_runs_is_a_list_and_each_has_its_page(serve: Callable[[Path], Asker], left: Left, row: MakeRow) -> None:
    folder = left([row(1)], name="one run").parent
    (folder / "secret.txt").write_text("secret")
    ask = serve(folder)
    assert 'href="one%20run/"' in ask("/")[1]
    assert ask("/newest")[0] == 200
    assert "all runs" in ask("/one%20run/")[1]
    status, _, headers = ask("/one%20run")
    assert (status, headers["Location"]) == (301, "/one%20run/")
    for path in ("/none/", "/secret.txt/", "/../", "/%2e%2e/", "/one%20run/metrics.jsonl/", "//evil/"):
        status, text, _ = ask(path)
        assert (status, "secret" in text) == (404, False), path


def test_a_page_of_another_name_gets_nothing(serve: Callable[[Path], Asker], left: Left, row: MakeRow) -> None:
    ask = serve(left([row(1)]))
    status, text, _ = ask("/", Host="evil.example")
    assert (status, "Reward" in text) == (403, False)
    assert ask("/", Host="localhost:1234")[0] == 200


def test_a_port_that_is_in_use_is_refused_with_what_to_do(left: Left) -> None:
    folder = left()
    with ReportServer(folder, 0) as server, pytest.raises(ValueError, match=r"expected a port that is free, got \d+: .*in use"):
        ReportServer(folder, server.server_port)


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="expected the folder of a run, or one that runs lie in"):
        ReportServer(tmp_path, 0)
