"""A cluster that runs: kstore's own server, in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kstore.testing import KafkaServer

pytest.importorskip("confluent_kafka")


@pytest.fixture
def cluster() -> Iterator[KafkaServer]:
    with KafkaServer() as server:
        yield server
