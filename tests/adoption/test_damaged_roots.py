"""Goal: whatever a damaged root holds, an adoption ends with a typed error and nothing changed, or in whole metadata.
Method: each file of a root with a cluster's metadata, a group and a transaction is cut, emptied, grown and has bytes
changed, by seeds."""

from __future__ import annotations

import random
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

import kstore
from kstore.errors import KStoreError
from kstore.store.store import open_store
from kstore.types import OffsetAndMetadata, TopicPartition
from tests.adoption.test_adopt import append, content, log_bytes, write_cluster
from tests.reference.metadata import read_snapshot

SEEDS = 10
NOT_READ = (".index", ".timeindex", ".txnindex", ".lock")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("whole") / "root"
    with open_store(root, "a") as store:
        store.create_topic("t", 2, config={"retention_ms": 7})
        append(store.log("t", 0), producer_id=7, producer_epoch=0, base_sequence=0)
        store.log("t", 0).roll()
        append(store.log("t", 0))
        with kstore.Consumer(store, group="g") as consumer:
            consumer.commit({TopicPartition("t", 0): OffsetAndMetadata(1, leader_epoch=0)})
        with kstore.Producer(store, transactional_id="x") as producer:
            producer.init_transactions()
            with producer.begin_transaction():
                producer.send("t", partition=1, value=b"v")
    write_cluster(root)
    return root


def damaged(data: bytes, rng: random.Random) -> bytes:
    kind = rng.randrange(5)
    if kind == 0:
        return data[: rng.randrange(len(data) + 1)]
    if kind == 1:
        return data + rng.randbytes(rng.randrange(1, 80))
    if kind == 2:
        return bytes(len(data))
    changed = bytearray(data or b"\0")
    for _ in range(rng.randrange(1, 4)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_damaged_file_ends_in_a_typed_error_or_in_whole_metadata(whole: Path, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    for path in sorted(path for path in whole.rglob("*") if path.is_file() and not path.name.endswith(NOT_READ)):
        place = tmp_path / "copy"
        shutil.copytree(whole, place / "root")
        changed = place / "root" / path.relative_to(whole)
        changed.write_bytes(damaged(path.read_bytes(), rng))
        before, logs = content(place / "root"), log_bytes(place / "root")
        report = None
        with suppress(KStoreError):
            report = kstore.adopt(place / "root", replace=True, keep_forever=True)
        if report is None:
            assert content(place / "root") == before, path
        else:
            records = read_snapshot(Path(report.snapshot).read_bytes())
            topics = {fields["name"] for name, fields in records if name == "topic"}
            assert {"t", "__consumer_offsets", "__transaction_state"} <= topics
            assert log_bytes(place / "root") == {name: logs[name] for name in logs if "__cluster_metadata" not in name}
        shutil.rmtree(place)
