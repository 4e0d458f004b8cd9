"""Goal: a server that is killed loses nothing that a client was told is there; one that is stopped doubles nothing.
Method: the command in a process of its own under three producers of librdkafka; 200 kills: make crash-serve."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")

from tests.crash.serving import ONCE, OUT, PLAIN, run


def test_killed_server_loses_no_acknowledged_record_and_doubles_none_of_an_idempotent_producer(tmp_path: Path) -> None:
    counts = run(tmp_path / "root", [signal.SIGKILL] * 2, seed=1)
    assert all(counts[topic] for topic in (PLAIN, ONCE, OUT))


def test_stopped_server_lets_its_clients_go_on_and_doubles_nothing(tmp_path: Path) -> None:
    counts = run(tmp_path / "root", [signal.SIGTERM] * 2, seed=2)
    assert all(counts[topic] for topic in (PLAIN, ONCE, OUT))
