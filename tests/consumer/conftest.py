"""The root that tests of the consumer read, with two partitions of a topic, and its store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kstore import LogConfig, WritableStore, open_store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with open_store(tmp_path / "root", "a") as store:
        store.create_topic("t", 2)
        store.create_topic("__consumer_offsets", 2)
        store.create_topic("__transaction_state", 1)
    return tmp_path / "root"


@pytest.fixture
def store(root: Path) -> Iterator[WritableStore]:
    with open_store(root, "a", LogConfig(segment_bytes=4096, file_delete_delay_ms=0, retention_ms=-1)) as opened:
        yield opened
