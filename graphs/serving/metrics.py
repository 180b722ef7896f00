"""What a server tells of itself, for Prometheus: counters of its engine, requests by outcome, how long they took."""

from collections.abc import Callable, Iterator
from typing import Any

from stages.packages import optional_package
from stages.rollout.statistics import EngineStatistics

COUNTERS = {
    "sampled_tokens": "Tokens sampled.",
    "prefilled_tokens": "Context tokens read in.",
    "kept_tokens": "Context tokens found cached from an earlier turn.",
    "shared_tokens": "Context tokens copied from another session.",
    "steps": "Decode steps.",
    "evictions": "Sessions that lost their cache to another one.",
    "loaded_bytes": "Bytes of parameters put in force.",
}
"""Counters of the engine."""
GAUGES = {
    "slots_busy": "Slots with a request, now.",
    "waiting": "Requests without a slot, now.",
    "version": "Version of the weights in force.",
}
"""What the engine has now."""


class Metrics:
    """Of one server.

    Args:
        engine: statistics of the engine, now.
        gauges: by name, what it means and what it is now.
    """

    def __init__(self, engine: Callable[[], EngineStatistics], gauges: dict[str, tuple[str, Callable[[], float]]]) -> None:
        prometheus = optional_package("prometheus_client", "serve", "headrace serve")
        core = optional_package("prometheus_client.core", "serve", "headrace serve")
        self._text = prometheus.exposition.generate_latest
        self.content_type: str = prometheus.exposition.CONTENT_TYPE_LATEST
        self._registry = prometheus.CollectorRegistry()
        self._registry.register(_Collected(core, engine, gauges))
        self._requests = prometheus.Counter(
            "headrace_requests", "Requests, by path and status.", ("path", "status"), registry=self._registry
        )
        self._seconds = prometheus.Histogram(
            "headrace_request_seconds", "Seconds from a request to the end of its answer.", ("path",), registry=self._registry,
            buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300),
        )  # fmt: skip

    def ended(self, path: str, status: int, seconds: float) -> None:
        """A request was answered; 499 where its client had gone."""
        self._requests.labels(path, status).inc()
        self._seconds.labels(path).observe(seconds)

    def text(self) -> bytes:
        """All of it."""
        return self._text(self._registry)


class _Collected:
    """What is looked up when it is asked for; a collector of prometheus_client."""

    def __init__(
        self, core: Any, engine: Callable[[], EngineStatistics], gauges: dict[str, tuple[str, Callable[[], float]]]
    ) -> None:
        self._core, self._engine, self._gauges = core, engine, gauges

    def collect(self) -> Iterator[Any]:
        """Every family."""
        statistics = self._engine()
        for name, told in COUNTERS.items():
            yield self._core.CounterMetricFamily(f"headrace_engine_{name}", told, value=getattr(statistics, name))
        for name, told in GAUGES.items():
            yield self._core.GaugeMetricFamily(f"headrace_engine_{name}", told, value=getattr(statistics, name))
        for name, (told, value) in self._gauges.items():
            yield self._core.GaugeMetricFamily(f"headrace_{name}", told, value=value())
