"""StoreCollector: the metrics of a store for prometheus_client, which is imported where it is used (extra metrics)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from kstore.store.upkeep.metrics import Metric

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

_WORD_START = re.compile(r"(?<=[a-z])(?=[A-Z])")
_COUNT = ".Count"


class MeasuredStore(Protocol):
    """A store with metrics, such as a WritableStore."""

    @property
    def is_closed(self) -> bool: ...

    def metrics(self) -> Mapping[str, Metric]: ...


def prometheus_name(name: str) -> str:
    """Return a metric's name as Prometheus has them: LogEndOffset becomes kstore_log_end_offset."""
    words = _WORD_START.sub("_", name.removesuffix(_COUNT)).replace("-", "_").replace(".", "_")
    return f"kstore_{words.lower()}"


class StoreCollector:
    """Collects the metrics of a store that is open, each time that they are scraped: register it with
    prometheus_client.REGISTRY.register.

    Figures of partitions have the labels topic and partition; what only grows while the store is open is a counter.
    Raises: ImportError if prometheus_client is missing.
    Threads: thread-safe.
    """

    def __init__(self, store: MeasuredStore) -> None:
        from prometheus_client import core

        self._families = core.CounterMetricFamily, core.GaugeMetricFamily
        self._store = store

    def collect(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
        """Return the families of the metrics; none of a store that was closed."""
        if self._store.is_closed:
            return
        counter, gauge = self._families
        for name, metric in self._store.metrics().items():
            kind = counter if name.endswith(_COUNT) else gauge
            exported, text = prometheus_name(name), f"{name} of the store, as in Kafka"
            if isinstance(metric, Mapping):
                family = kind(exported, text, labels=("topic", "partition"))
                for (topic, partition), value in metric.items():
                    family.add_metric((topic, str(partition)), value)
                yield family
            else:
                yield kind(exported, text, value=metric)
