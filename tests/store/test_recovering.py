"""Goal: recovery that is asked for by name goes by what the root says while it is locked, and leaves a broker's epoch.
Method: small roots of kstore's own; an Env that lets another writer come first while the lock is taken."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kstore.env import LocalEnv, LockFile
from kstore.log.files.names import find_partitions
from kstore.record import MemoryRecords
from kstore.store.store import open_store
from kstore.store.upkeep.recovering import RecoveredPartition, recover_partitions
from tests.making.batches import batch, write_offset_checkpoint

CLEAN = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"


class BusyEnv(LocalEnv):
    """Calls something just before the lock is taken, as a writer would have done it that held it until then."""

    def __init__(self, before_lock: Callable[[], None]) -> None:
        self._before_lock = before_lock

    def lock_file(self, path: str) -> LockFile | None:
        self._before_lock()
        return super().lock_file(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "root"
    with open_store(path, "a") as store:
        store.create_topic("t")
        for _ in range(2):
            store.log("t").append(MemoryRecords(batch(0, 3)))
    return path


def recover(root: Path, env: LocalEnv) -> list[RecoveredPartition]:
    return list(recover_partitions(find_partitions(root), "strict", env=env))


def test_checkpoints_count_as_they_are_once_the_root_is_locked(root: Path) -> None:
    log = root / "t-0" / "00000000000000000000.log"

    def cut_by_another() -> None:
        log.write_bytes(log.read_bytes()[:-10])
        write_offset_checkpoint(root / RECOVERY_POINTS, {"t-0": 3})

    (found,) = recover(root, BusyEnv(cut_by_another))
    assert found.refusal is None
    assert found.report is not None
    assert found.report.log_end_offset == 3


@pytest.mark.parametrize(("marker", "epoch"), [('{"version":0,"brokerEpoch":17}', 17), (None, -1)])
def test_root_keeps_the_epoch_of_its_broker(root: Path, marker: str | None, epoch: int) -> None:
    (root / CLEAN).unlink()
    if marker is not None:
        (root / CLEAN).write_text(marker)
    recover(root, LocalEnv())
    assert json.loads((root / CLEAN).read_text())["brokerEpoch"] == epoch
