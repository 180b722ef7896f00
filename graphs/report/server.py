"""Serves reports on this machine alone: of one run, or of all runs in a folder, and what is new while a run goes on.

Only to the loopback interface, only reading, and only to pages that were asked for by its own name: a page of somebody else's,
which a browser could be led to, gets nothing.
"""

import hashlib
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from graphs.report.page import body, list_of_runs, page
from graphs.report.record import RunRecord, read_record, stamp
from graphs.report.verdict import Told, verdict_of
from graphs.runs.saved import is_run

HOST = "127.0.0.1"
REFRESH_S = 3.0
"""Seconds between two questions of a page for what is new."""
NEWEST = "newest"
"""Last part of the address of what is new; before it stands that of the page."""
_NAMES = ("127.0.0.1", "localhost")


class ReportServer(ThreadingHTTPServer):
    """Serves a run, or a folder of runs.

    Args:
        folder: of either.
        port: to listen at; 0 takes a free one.

    Raises:
        LookupError: no run is there, and the folder holds none.
        ValueError: the port cannot be had.
    """

    daemon_threads = True

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.single = folder.absolute(), is_run(folder)
        self._verdicts: dict[Path, tuple[str, Told | None]] = {}
        if not self.single and not self.runs:
            raise LookupError(
                f"expected the folder of a run, or one that runs lie in, got '{folder}', with no config.json of a run; give "
                "one such as runs/NAME, or runs"
            )
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise ValueError(
                f"expected a port that is free, got {port}: {error.strerror}, in --port; choose another, or 0 for any"
            ) from error

    @property
    def address(self) -> str:
        """Where a browser finds it."""
        return f"http://{HOST}:{self.server_port}/"

    @property
    def runs(self) -> dict[str, Path]:
        """Runs that lie in the folder, by name."""
        there = sorted(self.folder.iterdir()) if self.folder.is_dir() else []
        return {path.name: path for path in there if is_run(path)}

    def run_at(self, path: str) -> Path | None:
        """The run that a part of an address names; ``None`` for none."""
        return (self.folder if path == "" else None) if self.single else self.runs.get(path)

    def answer(self, path: str, known: str) -> tuple[HTTPStatus, str, str]:
        """(status, page, its tag) of what is asked for.

        Args:
            path: of a page, which ends in a slash, or of what is new of it.
            known: tag of what the page has; empty for nothing.
        """
        new = path.endswith(f"/{NEWEST}")
        at = (path.removesuffix(NEWEST) if new else path).strip("/")
        if not self.single and at == "":
            inside = list_of_runs(self.folder, list(self.runs.values()))
            tag = f'"{hashlib.blake2b(inside.encode(), digest_size=8).hexdigest()}"'
            return self._told(self.folder.name, inside, tag, known, new)
        run = self.run_at(at)
        if run is None:
            return HTTPStatus.NOT_FOUND, page("not found", "<h1>There is no such run here</h1>"), ""
        tag = f'"{stamp(run)}"'
        if new and tag == known:
            return HTTPStatus.NOT_MODIFIED, "", tag
        record = read_record(run)
        return self._told(run.name, body(record, self._verdict(record, tag), listed=not self.single), tag, known, new)

    def _verdict(self, record: RunRecord, tag: str) -> Told | None:
        """What bounded a run that has ended: read from its trace once, since that takes a while."""
        if not record.ended:
            return None
        if self._verdicts.get(record.folder, ("", None))[0] != tag:
            self._verdicts[record.folder] = tag, verdict_of(record)
        return self._verdicts[record.folder][1]

    def _told(self, title: str, inside: str, tag: str, known: str, new: bool) -> tuple[HTTPStatus, str, str]:
        if new and tag == known:
            return HTTPStatus.NOT_MODIFIED, "", tag
        return HTTPStatus.OK, inside if new else page(title, inside, refresh_s=REFRESH_S), tag


class _Handler(BaseHTTPRequestHandler):
    server: ReportServer  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        """Answer a question."""
        if urlsplit(f"//{self.headers.get('Host', '')}").hostname not in _NAMES:
            self._send(HTTPStatus.FORBIDDEN, page("refused", f"<h1>This server answers to {HOST} alone</h1>"), "")
            return
        path = unquote(urlsplit(self.path).path)
        if not path.endswith(("/", f"/{NEWEST}")):  # relative addresses of a page start from its last slash
            self.send_response(HTTPStatus.MOVED_PERMANENTLY)
            self.send_header("Location", f"{urlsplit(self.path).path}/")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self._send(*self.server.answer(path, self.headers.get("If-None-Match", "")))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002, the name is the standard library's
        """Nothing: who asked for what is of no interest."""

    def _send(self, status: HTTPStatus, text: str, tag: str) -> None:
        content = text.encode()
        self.send_response(status)
        for name, value in (("Content-Type", "text/html; charset=utf-8"), ("Content-Length", str(len(content))),
                            ("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"), ("ETag", tag)):  # fmt: skip
            if value:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
