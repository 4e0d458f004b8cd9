"""Staged batches that kstore commits in a root that a broker takes over, and that kstore takes back from it.

Each step gives problems, one line each; none means that it went as promised.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from kstore.coordinator.transaction.coordinator import TransactionCoordinator
from kstore.errors import LogFailedError
from kstore.staging import AppVersion, StagingArea, prepare_root
from kstore.store.store import open_store
from kstore.types import SINK_TOPIC, TRANSACTION_STATE_TOPIC
from tests.interop.broker import NODE_ID, Broker
from tests.interop.comparison import hashed
from tests.interop.store import CLUSTER_ID, records_of, topic_id
from tests.interop.transactions import differing
from tests.making.staging import TOPIC, commit, stage

Problems = Iterator[str]
QUERY = "a-query"
VERSIONS = range(4)


def steps(work: Path) -> Iterator[tuple[str, Problems]]:
    root = work / "root"
    with open_store(root, "a", cluster_id=CLUSTER_ID, node_id=NODE_ID):
        pass
    broker = Broker(root, work)
    broker.format(CLUSTER_ID)
    with broker.running() as client:
        for topic in (TOPIC, TRANSACTION_STATE_TOPIC, SINK_TOPIC):
            topic_id(client, topic, ("cleanup.policy=compact",) if topic != TOPIC else ())
    prepare_root(root)
    for version in VERSIONS:
        committed(root, version)
    dies_after_the_decision(root, len(VERSIONS))
    stage(root, AppVersion("that died", 0), [(0, b"never committed")])
    wanted = [hashed(b"%d" % version) for version in range(len(VERSIONS) + 1)]
    with broker.running() as client:
        lines = records_of(client, TOPIC, "read_committed")
        yield "a consumer reads what kstore committed", differing("hashes", [line["value"] for line in lines], wanted)
        yield "a broker keeps what is staged", staged_is_there(root)
    yield "a broker finds nothing wrong with the root", complaints(broker)
    yield "kstore knows what it committed before the broker came", repeated(root)
    with broker.running() as client:
        lines = records_of(client, TOPIC, "read_committed")
        wanted.append(hashed(b"%d" % (len(VERSIONS) + 1)))
        yield "a consumer reads on", differing("hashes", [line["value"] for line in lines], wanted)


def committed(root: Path, version: int) -> bool:
    app = AppVersion(QUERY, version)
    return commit(root, app, stage(root, app, [(0, b"%d" % version)], compression_type="lz4"))


def dies_after_the_decision(root: Path, version: int) -> None:
    def die(*_: Any, **__: Any) -> Any:
        raise LogFailedError("died")

    with mock.patch.object(TransactionCoordinator, "_marker", die):
        try:
            committed(root, version)
        except LogFailedError:
            return
    raise AssertionError("the commit did not die")


def staged_is_there(root: Path) -> Problems:
    files = [path for path in Path(StagingArea(root).path).rglob("*") if path.is_file()]
    # Of the version that died, and of the query that did.
    yield from differing("staged files", len(files), 2)


def complaints(broker: Broker) -> Problems:
    for line in broker.lines:
        if any(word in line for word in ("ERROR", "stray", "kstore-staging", "corrupt")):
            yield line


def repeated(root: Path) -> Problems:
    for version in range(len(VERSIONS) + 1):
        yield from differing(f"version {version} committed again", committed(root, version), False)
    yield from differing("a new version", committed(root, len(VERSIONS) + 1), True)
