"""Sends metrics and spans by OpenTelemetry, to where its own environment variables say.

``OTEL_EXPORTER_OTLP_ENDPOINT`` and its kin, ``OTEL_SERVICE_NAME``, ``OTEL_RESOURCE_ATTRIBUTES``,
``OTEL_METRIC_EXPORT_INTERVAL``; ``OTEL_METRICS_EXPORTER`` and ``OTEL_TRACES_EXPORTER`` choose ``otlp`` (by HTTP, the default),
``console`` or ``none``.

Metrics are gauges ``headrace.KIND.METRIC`` with phase and stage as attributes. Spans: the run, its phases in it, in these its
steps, evaluations and episodes. What goes on in a stage is in the run's own trace, which has all of it.
"""

import datetime
import logging
import math
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any

from graphs.loggers.logger import Told
from graphs.runs.metrics import find, kind_of, numbers
from stages.packages import optional_package

_WHERE = "--options.loggers otel"
_TOLD = "told"
_LENGTHS = {"step": "step_s", "evaluation": "heldout_s"}


class _Complaints(logging.Handler):
    """Keeps the first complaint of the packages, which they would write past the live view, again and again."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._log, self._first = logging.getLogger("opentelemetry"), ""
        self._log.addHandler(self)
        self._log.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the first."""
        self._first = self._first or record.getMessage()

    def tell(self) -> None:
        """Raise what was complained of, once."""
        if self._first not in ("", _TOLD):
            first, self._first = self._first, _TOLD
            raise ConnectionError(first)

    def detach(self) -> None:
        """Complaints go where they went before."""
        self._log.removeHandler(self)
        self._log.propagate = True


class Otel:
    """A logger.

    Args:
        told: of the run.
        metrics: a meter provider.
        traces: a tracer provider.
    """

    def __init__(self, told: Told, metrics: Any, traces: Any) -> None:
        self._providers = (metrics, traces)
        self._meter, self._tracer = metrics.get_meter("headrace"), traces.get_tracer("headrace")
        self._in = optional_package("opentelemetry.trace", "otel", _WHERE).set_span_in_context
        attributes = {"headrace.program": told.program, "headrace.attempt": told.attempt}
        self._run = self._tracer.start_span(told.name, attributes=attributes)
        self._phases: dict[str, tuple[Any, int]] = {}
        self._gauges: dict[str, Any] = {}
        self._complaints = _Complaints()

    def row(self, row: Mapping[str, Any]) -> None:
        """Set a gauge to each number; a step or an evaluation is a span too, which ends when its row was written.

        A gauge holds no number that is not finite: such a one is an event of the phase.
        """
        kind, end = kind_of(row), _ns(row["time"])
        name = kind or row["stage"]
        place = {"headrace.phase": row["phase"], "headrace.stage": row["stage"]}
        for metric, value in numbers(row):
            if math.isfinite(value):
                self._gauge(name, metric).set(value, place)
            else:
                self._phase(row["phase"], end).add_event("not finite", {f"headrace.{name}.{metric}": str(value), **place}, end)
        if kind == "alert":
            self._phase(row["phase"], end).add_event("alert", {n: str(row[n]) for n in ("alert", "state", "value")}, end)
        elif kind in _LENGTHS and row.get(_LENGTHS[kind]) is not None:
            number = row["step"] if kind == "step" else row["version"]
            self._span(f"{kind} {number}", row["phase"], end, row[_LENGTHS[kind]], place)
        self._complaints.tell()

    def episode(self, episode: Mapping[str, Any]) -> None:
        """A span of its length."""
        attributes = {f"headrace.{name}": value for name, value in episode.items() if isinstance(value, str | int | float)}
        self._span("episode", episode["phase"], _ns(episode["time"]), episode["seconds"], attributes)

    def close(self, summary: Mapping[str, Any]) -> None:
        """End all spans and send what is left."""
        for span, last in self._phases.values():
            span.end(last)
        self._run.set_attribute("headrace.status", str(summary.get("status")))
        self._run.end()
        try:
            for provider in self._providers:
                provider.shutdown()
            self._complaints.tell()
        finally:
            self._complaints.detach()

    def _gauge(self, kind: str, metric: str) -> Any:
        name = re.sub(r"[^-_.a-zA-Z0-9]", "_", f"headrace.{kind}.{metric}".replace("/", "."))[:255]
        if name not in self._gauges:
            known = find(metric)
            self._gauges[name] = self._meter.create_gauge(
                name, unit=known.unit if known else "", description=known.meaning if known else ""
            )
        return self._gauges[name]

    def _phase(self, phase: str, now: int) -> Any:
        span, _ = self._phases.get(phase) or (self._tracer.start_span(phase, self._in(self._run), start_time=now), now)
        self._phases[phase] = (span, now)
        return span

    def _span(self, name: str, phase: str, end: int, seconds: float, attributes: Mapping[str, Any]) -> None:
        begin = end - int(seconds * 1e9)
        parent = self._phase(phase, begin if phase not in self._phases else end)
        self._phases[phase] = (parent, max(end, self._phases[phase][1]))
        self._tracer.start_span(name, self._in(parent), attributes=dict(attributes), start_time=begin).end(end)


def open_otel(told: Told) -> Otel:
    """Begin to send, as the environment says."""
    sdk = optional_package("opentelemetry.sdk", "otel", _WHERE).__name__
    modules = {name: optional_package(f"{sdk}.{name}", "otel", _WHERE) for name in ("resources", "trace", "metrics")}
    spans, measures = (optional_package(f"{sdk}.{name}.export", "otel", _WHERE) for name in ("trace", "metrics"))
    named = {} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": "headrace"}
    resource = modules["resources"].Resource.create(named | {"service.instance.id": told.name})
    traces = modules["trace"].TracerProvider(resource=resource)
    for exporter in _exporters("TRACES", spans.ConsoleSpanExporter):
        traces.add_span_processor(spans.BatchSpanProcessor(exporter))
    readers = [measures.PeriodicExportingMetricReader(e) for e in _exporters("METRICS", measures.ConsoleMetricExporter)]
    return Otel(told, modules["metrics"].MeterProvider(resource=resource, metric_readers=readers), traces)


def _exporters(signal: str, console: Callable[..., Any]) -> Sequence[Any]:
    """The exporter that the environment names, none or one."""
    name = os.environ.get(f"OTEL_{signal}_EXPORTER", "otlp")
    if name in ("none", "console"):
        return [console(out=sys.stdout)] if name == "console" else []
    wanted = "otlp_proto_http" if name == "otlp" else name
    found = list(entry_points(group=f"opentelemetry_{signal.lower()}_exporter", name=wanted))
    if not found:
        raise LookupError(
            f"expected an exporter that is installed, got '{name}', in OTEL_{signal}_EXPORTER; one of otlp, console or none"
        )
    return [found[0].load()()]


def _ns(time: str) -> int:
    return int(datetime.datetime.fromisoformat(time).timestamp() * 1e9)
