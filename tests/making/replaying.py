"""Replays into kstore's own server, and what of a record arrives."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import kstore
from kstore.log.reads import Isolation
from kstore.testing import KafkaServer

TIMEOUT_S = 20.0


def contents(records: Iterable[kstore.Record]) -> list[tuple[Any, ...]]:
    """What of records arrives: all but their offsets."""
    return [(record.key, record.value, record.headers, record.timestamp_ms) for record in records]


def read(
    path: Path, start: int | None = None, end: int | None = None, *, isolation: Isolation = "read_committed"
) -> list[tuple[Any, ...]]:
    """What a replay of a partition sends."""
    with kstore.open_log(path) as log:
        return contents(log.read(start, end, isolation=isolation))


def replayed(source: Path, cluster: KafkaServer, **options: Any) -> kstore.ReplaySummary:
    return kstore.replay(source, cluster.bootstrap_servers, **{"timeout": TIMEOUT_S, **options})
