"""ServerMetrics: what a server counts of its requests, and the log of them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    from kstore.wire.frames import Request

_access = logging.getLogger("kstore.serve.access")
_COUNTED = {
    "requests": "Requests that were answered",
    "request_seconds": "Time from a whole request to its answer, waits for records included",
    "request_bytes": "Bytes of requests",
    "response_bytes": "Bytes of answers",
}


@dataclass(slots=True)
class RequestMetrics:
    """The requests of one api: their number, the seconds to their answers, the bytes of both."""

    requests: int = 0
    request_seconds: float = 0.0
    request_bytes: int = 0
    response_bytes: int = 0


class ServerMetrics:
    """Counts since the server started.

    Attributes: by_api (by Kafka's name of an api), open_connections.
    Threads: the loop's writes, others read.
    """

    def __init__(self) -> None:
        self.by_api: dict[str, RequestMetrics] = {}
        self.open_connections: Collection[object] = ()

    def note(
        self, api: str, request: Request, client: str, *, seconds: float, request_bytes: int, response_bytes: int
    ) -> None:
        """Count a request to an api that was answered, and log it if the logger kstore.serve.access is on for INFO."""
        counts = self.by_api.get(api)
        if counts is None:
            counts = self.by_api[api] = RequestMetrics()
        counts.requests += 1
        counts.request_seconds += seconds
        counts.request_bytes += request_bytes
        counts.response_bytes += response_bytes
        if _access.isEnabledFor(logging.INFO):
            fields = {
                "api": api,
                "version": request.version,
                "client_id": request.client_id,
                "client": client,
                "request_bytes": request_bytes,
                "response_bytes": response_bytes,
                "ms": round(seconds * 1000, 3),
            }
            _access.info("%s", " ".join(f"{key}={value}" for key, value in fields.items()), extra={"fields": fields})


class ServerCollector:
    """Collects the metrics of a server for prometheus_client, each time that they are scraped.

    Raises: ImportError if prometheus_client is missing (extra metrics).
    """

    def __init__(self, metrics: ServerMetrics) -> None:
        from prometheus_client import core

        self._counter, self._gauge = core.CounterMetricFamily, core.GaugeMetricFamily
        self._metrics = metrics

    def collect(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
        """Return the families of the metrics."""
        metrics = self._metrics
        for name, meaning in _COUNTED.items():
            family = self._counter(f"kstore_serve_{name}", f"{meaning}, by api", labels=("api",))
            for api, counts in sorted(metrics.by_api.copy().items()):
                family.add_metric((api,), getattr(counts, name))
            yield family
        count = len(metrics.open_connections)
        yield self._gauge("kstore_serve_connections", "Connections that are open", value=count)
