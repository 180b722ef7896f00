"""OpenTelemetry, to a collector on loopback that reads its own protocol."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from graphs.loggers.aside import Aside
from graphs.loggers.logger import Told
from graphs.loggers.otel import open_otel

pytest.importorskip("opentelemetry.sdk")
metrics_service = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
trace_service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
pytestmark = pytest.mark.extra


class Collected:
    def __init__(self) -> None:
        self.gauges: dict[str, list[float]] = {}
        self.units: dict[str, str] = {}
        self.spans: dict[str, Any] = {}
        self.resource: dict[str, str] = {}

    def take(self, path: str, body: bytes) -> None:
        if path == "/v1/metrics":
            sent = metrics_service.ExportMetricsServiceRequest.FromString(body)
            for metric in (m for r in sent.resource_metrics for s in r.scope_metrics for m in s.metrics):
                self.units[metric.name] = metric.unit
                self.gauges.setdefault(metric.name, []).extend(point.as_double for point in metric.gauge.data_points)
        else:
            sent = trace_service.ExportTraceServiceRequest.FromString(body)
            for each in sent.resource_spans:
                self.resource = {a.key: a.value.string_value for a in each.resource.attributes}
                self.spans |= {span.name: span for scope in each.scope_spans for span in scope.spans}


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collected]:
    found = Collected()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.take(self.path, self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
        yield found
        server.shutdown()
        thread.join()


def test_metrics_are_gauges_and_steps_and_episodes_are_spans_in_their_phase(
    told: Callable[..., Told], steps: Any, healthy: Any, collected: Collected
) -> None:
    """S43: a gauge holds no number that is not finite, so it is an event of the phase."""
    logger = open_otel(told())
    logger.row(steps(1, loss=float("nan")))
    logger.row({**steps(1), "drawn/my tasks": 4})
    logger.row(healthy(30.0))
    logger.episode({"time": "2026-01-01T00:00:01+00:00", "phase": "rl", "seconds": 0.5, "status": "finished", "task": "a"})
    logger.close({"status": "completed"})
    assert collected.gauges["headrace.step.reward_mean"] == [pytest.approx(0.1)]
    assert collected.gauges["headrace.step.drawn.my_tasks"] == [4.0]
    assert "headrace.step.loss" not in collected.gauges
    assert (collected.gauges["headrace.health.open_groups"], collected.units["headrace.health.open_groups"]) == (
        [3.0],
        "groups",
    )
    assert set(collected.spans) == {"it", "rl", "step 1", "episode"}
    run, phase, step, episode = (collected.spans[name] for name in ("it", "rl", "step 1", "episode"))
    assert (phase.parent_span_id, step.parent_span_id, episode.parent_span_id) == (run.span_id, phase.span_id, phase.span_id)
    assert [(event.name, event.attributes[0].value.string_value) for event in phase.events] == [("not finite", "nan")]
    assert (step.end_time_unix_nano - step.start_time_unix_nano) / 1e9 == 0.25
    assert (episode.end_time_unix_nano - episode.start_time_unix_nano) / 1e9 == 0.5
    assert (collected.resource["service.name"], collected.resource["service.instance.id"]) == ("headrace", "it")


@pytest.mark.slow
def test_a_collector_that_is_not_there_is_told_once_and_the_packages_print_nothing(
    told: Callable[..., Told], steps: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nobody listens on the port; the packages would try for ten seconds, which their own variable shortens here."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
    failures: list[str] = []
    aside = Aside("otel", lambda: open_otel(told()), failures.append)
    began = time.monotonic()
    for number in range(50):
        aside.row(steps(number))
        time.sleep(0.01)
    assert aside.close({"status": "completed"})
    assert time.monotonic() - began < 10
    assert len(failures) == 1
    assert failures[0].startswith("the logger otel failed: ConnectionError: ")
    assert capfd.readouterr() == ("", "")


def test_the_environment_decides_where_it_goes(
    told: Callable[..., Told],
    steps: Any,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    collected: Collected,
) -> None:
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    logger = open_otel(told())
    logger.row(steps(1))
    logger.close({})
    assert '"name": "step 1"' in capfd.readouterr().out
    assert (collected.gauges, collected.spans) == ({}, {})
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "pigeon")
    with pytest.raises(LookupError, match="expected an exporter that is installed, got 'pigeon', in OTEL_TRACES_EXPORTER"):
        open_otel(told())
