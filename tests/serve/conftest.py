"""A server of a new root with the topic "t" of two partitions, and a client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import kstore
from kstore.serve.config import ServerConfig
from kstore.serve.server import Server
from tests.making.serving import RawClient


@pytest.fixture
def served(tmp_path: Path) -> Iterator[kstore.WritableStore]:
    with kstore.open_store(tmp_path / "root", "a") as store:
        store.create_topic("t", partitions=2)
        yield store


@pytest.fixture
def server(served: kstore.WritableStore) -> Iterator[Server]:
    with Server(served, config=ServerConfig(port=0, most_request_bytes=1 << 20)) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[RawClient]:
    with RawClient(server) as connected:
        yield connected
